"""The process that probes: reads requests, answers each, may die on any.

Runs one layer at a time, so a model of any depth and size is probed on one device
that holds its largest layer. Started as a module of its own by `prober_process`.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TextIO

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from plimsoll_planner.errors import DEBUG_VARIABLE, PlimsollError
from plimsoll_planner.exit_codes import ExitCode
from plimsoll_planner.records.document import Document, from_text, to_text
from plimsoll_planner.records.engine import Way
from plimsoll_planner.records.layer_costs import Source
from plimsoll_planner.records.model_profile import (
    DeviceKind,
    Fingerprint,
    ProbeOutcome,
    Recipe,
    TiedLayers,
    Variant,
)
from plimsoll_planner.records.plan import Phase
from plimsoll_profiler.counting.meters import Bench, open_bench
from plimsoll_profiler.probing.batch_statistics import batch_statistics, mixes_tokens
from plimsoll_profiler.probing.cases import cases_of, num_untrained, taken_by
from plimsoll_profiler.probing.divided_state import Divider
from plimsoll_profiler.probing.host_steps import HostSteps
from plimsoll_profiler.probing.layer_probe import LayerCase, ways_of
from plimsoll_profiler.probing.layer_state import probe_state, tied_layers
from plimsoll_profiler.probing.layer_timing import num_in_turn, time_ways
from plimsoll_profiler.probing.messages import (
    CarriedFrame,
    Frame,
    LayerState,
    PassCosts,
    ProbeRequest,
    ProbeResult,
    out_of_memory,
)
from plimsoll_profiler.probing.pass_costs import probe_ways
from plimsoll_profiler.probing.tensor_groups import split_variants, tensor_group
from plimsoll_trainer.engine.batches import DEBUG, check_samples, first_batch
from plimsoll_trainer.engine.boundaries import Boundaries, boundaries_of
from plimsoll_trainer.engine.built_layer import build_layer
from plimsoll_trainer.engine.elementwise import is_elementwise
from plimsoll_trainer.engine.evaluation_samples import check_evaluation
from plimsoll_trainer.engine.gradients import attach_gradients
from plimsoll_trainer.engine.host_optimizer import steps_on_host
from plimsoll_trainer.engine.learned import in_all, with_frozen
from plimsoll_trainer.engine.split_tensors import parameters_here
from plimsoll_trainer.errors import THEIR_ERRORS, WorkloadError, exit_code_of, located
from plimsoll_trainer.out_of_memory import is_out_of_memory
from plimsoll_trainer.process.failures import explain
from plimsoll_trainer.torch_internals.operators import NEEDS_NUMBERS
from plimsoll_trainer.user_code.arguments import parse_arguments
from plimsoll_trainer.user_code.entrypoint import load_workload
from plimsoll_trainer.user_code.fingerprint import fingerprint_of
from plimsoll_trainer.workload import (
    TokenLoss,
    Workload,
    optimizer_mode,
    sample_optimizer,
)


def main() -> int:
    """Answer requests until the input ends."""
    entrypoint, arguments, kind, source, sizes, degrees = sys.argv[1:]
    out = sys.stdout
    sys.stdout = sys.stderr  # what the workload prints must not mix with answers
    torch.set_num_threads(1)
    faulthandler.enable()
    try:
        # Before the code runs, as ranks do: it may change what Python finds.
        fingerprint = fingerprint_of(entrypoint, arguments)
        workload = load_workload(entrypoint, parse_arguments(arguments))
        prober = Prober(workload, sorted(json.loads(sizes)), json.loads(degrees))
        with open_bench(DeviceKind(kind), Source(source)) as bench:
            answer(out, prober.frame(fingerprint, bench))
            for line in sys.stdin:
                request = from_text(line, ProbeRequest)
                answer(out, prober.probe(request, bench))
    except THEIR_ERRORS as error:
        if os.environ.get(DEBUG_VARIABLE):
            traceback.print_exc()
        reason = explain(error, Phase.BUILD, None)
        print(reason, file=sys.stderr)
        return exit_code_of(reason)
    return ExitCode.DONE


def answer(out: TextIO, document: Document) -> None:
    """Send one line at once."""
    out.write(to_text(document) + "\n")
    out.flush()


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """All but seconds of a probe, which later rounds would find again."""

    passes: dict[Way, PassCosts]
    batch_statistics: tuple[str, ...]


class Prober:
    """Probes the layers of one workload."""

    def __init__(
        self,
        workload: Workload,
        micro_batches: Sequence[int],
        tensor_degrees: Sequence[int] = (1,),
    ) -> None:
        """Find kinds and shapes while tensors have data; smallest micro-batch first."""
        self.shapes = shapes_of(workload, micro_batches)
        self.fewest = min(self.shapes)
        if unlearned := in_all([one.unlearned for one in self.shapes.values()]):
            workload = with_frozen(workload, unlearned)
            self.shapes = shapes_of(workload, micro_batches)
        self.workload = workload
        check_samples(workload)
        shapes = self.shapes[self.fewest]
        check_evaluation(workload, shapes)
        self.cases, self.kind_of_layer = cases_of(workload, shapes)
        self.split = split_variants(workload, tensor_degrees, self.cases, shapes)
        is_hosted = steps_on_host(workload.optimizer)
        self.host_steps = HostSteps(workload) if is_hosted else None
        self.divider = Divider(workload) if is_elementwise(workload.optimizer) else None
        self.known: dict[ProbeRequest, Known] = {}

    def frame(self, fingerprint: Fingerprint, bench: Bench) -> Frame:
        """Frame of all probes, known before the first."""
        shapes, workload = self.shapes[self.fewest], self.workload
        optimizer = sample_optimizer(workload, "cpu")
        return Frame(
            fingerprint=fingerprint,
            recipe=Recipe(
                precision=workload.precision,
                optimizer=type(optimizer).__name__,
                optimizer_mode=optimizer_mode(optimizer, bench.kind),
                gradient_precision=workload.gradient_precision,
                elementwise=self.divider is not None,
                steps_on_host=self.host_steps is not None,
            ),
            device_product=bench.product,
            tokens_per_sample=workload.tokens_per_sample,
            input_bytes_per_sample=sum(one.nbytes for one in shapes.inputs)
            // self.fewest,
            target_bytes_per_sample=shapes.targets.nbytes // self.fewest,
            micro_batches=tuple(sorted(self.shapes)),
            layers=tuple(layer.name for layer in workload.layers),
            kind_of_layer=self.kind_of_layer,
            cases=self.cases,
            variants=self.split.possible,
            split_cases=tuple(
                place
                for place, case in enumerate(self.cases)
                if workload.layers[case.layer].parallelize is not None
            ),
            not_split=self.split.left_out,
            num_untrained=num_untrained(shapes),
            not_compared=tuple(
                place
                for place, case in enumerate(self.cases)
                if case.layer in self.split.not_compared
            ),
            tied=tuple(self.tied(bench)),
            carried=tuple(
                CarriedFrame(
                    name=value.name,
                    source=value.source,
                    takers=value.takers,
                    needs_gradient=shapes.carried[place].needs_gradient,
                    num_bytes=tuple(
                        bench.rounded(self.shapes[b].carried[place].spec.nbytes)
                        for b in sorted(self.shapes)
                    ),
                )
                for place, value in enumerate(workload.carried)
            ),
        )

    def tied(self, bench: Bench) -> Iterator[TiedLayers]:
        """Yield what layers share, under every tensor degree."""
        for place, variant in enumerate(self.split.possible):
            with tensor_group(variant.tensor_degree, bench.device) as mesh:
                found = tied_layers(
                    *(self.workload, bench, self.divider, mesh),
                    sequence_parallel=variant.sequence_parallel,
                )
                yield from [replace(one, variant=place) for one in found]

    def probe(self, request: ProbeRequest, bench: Bench) -> ProbeResult:
        """Probe one case; out of memory is an outcome."""
        try:
            with tensor_group(request.variant.tensor_degree, bench.device) as mesh:
                result = self._probe(request, bench, mesh)
        except THEIR_ERRORS as error:
            if not is_out_of_memory(error):
                raise self.named(error, request) from error
            result = out_of_memory(request, str(error).strip().splitlines()[0][:1000])
        gc.collect()
        return result

    def named(self, error: BaseException, request: ProbeRequest) -> BaseException:
        """The error with the layer that raised it, unless it says all itself."""
        if isinstance(error, (PlimsollError, *NEEDS_NUMBERS)):
            return error
        name = self.workload.layers[self.cases[request.case].layer].name
        return WorkloadError(
            f"layer {name!r} cannot be probed at micro-batch {request.micro_batch}: "
            f"{located(error)}; {DEBUG}"
        )

    def _probe(
        self, request: ProbeRequest, bench: Bench, mesh: DeviceMesh | None
    ) -> ProbeResult:
        case, variant = self.cases[request.case], request.variant
        layer, state = probe_state(
            *(self.workload, case.layer, bench),
            *(self.divider, self.host_steps, mesh),
            sequence_parallel=variant.sequence_parallel,
        )
        where = self.place_of(case.layer, request.micro_batch, variant)
        ways = ways_of(where, recomputable=case.recomputable)
        known = self.known.get(request)
        if known is None:
            if bench.is_real and mesh is None:
                self.check_tokens(layer, case.layer, where, bench)
            known = self.known[request] = Known(
                passes=probe_ways(layer, ways, bench, is_split=mesh is not None),
                batch_statistics=tuple(batch_statistics(layer, where, bench)),
            )
        found = dict(known.passes)
        if bench.is_real:
            by_sequence = variant.sequence_parallel
            copies = partial(
                self.copies_of,
                *(request.case, state, bench, mesh),
                sequence_parallel=by_sequence,
            )
            on_device = {way: one for way, one in ways.items() if not way.offloads}
            timed = time_ways(layer, copies, list(on_device.values()), bench)
            for way, (forward_s, backward_s) in zip(on_device, timed, strict=True):
                found[way] = replace(
                    found[way], forward_s=forward_s, backward_s=backward_s
                )
        return ProbeResult(
            case=request.case,
            micro_batch=request.micro_batch,
            variant=variant,
            outcome=ProbeOutcome.COMPLETED,
            state=state,
            kept=found[Way.KEPT],
            recomputed=found.get(Way.RECOMPUTED),
            offloaded=found[Way.OFFLOADED],
            recomputed_from_host=found.get(Way.RECOMPUTED_FROM_HOST),
            batch_statistics=known.batch_statistics,
        )

    def check_tokens(
        self, layer: nn.Module, index: int, where: LayerCase, bench: Bench
    ) -> None:
        """Refuse a loss in pieces behind a layer that mixes tokens.

        Raises:
            WorkloadError: see above.
        """
        in_pieces = isinstance(where.loss, TokenLoss) and not where.taken
        if in_pieces and mixes_tokens(layer, where, bench):
            raise WorkloadError(
                f"layer {self.workload.layers[index].name!r} gives a token another "
                "output alone than among others, so its loss cannot be taken in "
                f"pieces: give the loss itself in place of TokenLoss("
                f"{getattr(where.loss, 'name', '')}, ...)"
            )

    def copies_of(
        self,
        kind: int,
        state: LayerState,
        bench: Bench,
        mesh: DeviceMesh | None,
        *,
        sequence_parallel: bool,
    ) -> list[nn.Module]:
        """Build other layers of a kind, to take turns with the first."""
        layer_bytes = state.parameter_bytes + state.gradient_bytes
        num_layers = num_in_turn(self.kind_of_layer.count(kind), layer_bytes)
        index = self.cases[kind].layer
        layers = [
            build_layer(
                *(self.workload, index, bench.device, mesh),
                sequence_parallel=sequence_parallel,
            )
            for _ in range(num_layers - 1)
        ]
        for layer in layers:
            attach_gradients(parameters_here(layer), self.workload.gradient_dtype)
        return layers

    def place_of(self, index: int, micro_batch: int, variant: Variant) -> LayerCase:
        """Place of a layer in the chain."""
        shapes = self.shapes[micro_batch]
        if variant.sequence_parallel:
            shapes = shapes.in_parts(self.workload, variant.tensor_degree)
        is_last = index == len(self.workload.layers) - 1
        return LayerCase(
            incoming=shapes.between[index],
            is_untrained=index in shapes.untrained,
            taken=taken_by(self.workload, index, shapes),
            targets=shapes.targets if is_last else None,
            loss=self.workload.loss if is_last else None,
        )


def shapes_of(
    workload: Workload, micro_batches: Sequence[int]
) -> dict[int, Boundaries]:
    """Shapes for each micro-batch, from the smallest that the layers take on.

    Some take no single sample, as BatchNorm1d, which finds no variance in one: they are
    profiled from the next micro-batch on, and no plan has a smaller one.

    Raises:
        WorkloadError: the batch cannot be made, or the layers fit together at none; at
            one sample alone, if that is all that was asked for.
    """
    fewest = micro_batches[0]
    first_batch(workload, fewest)
    found: dict[int, Boundaries] = {}
    try:
        found = {fewest: boundaries_of(workload, fewest)}
        rest = list(micro_batches[1:])
    except WorkloadError as error:
        rest = [b for b in micro_batches if fits_together(workload, b)]
        if not rest:
            advice = "; at least 2 samples are needed: pass --micro-batches 2,3,4"
            fits = fewest == 1 and fits_together(workload, 2)
            raise WorkloadError(f"{error}{advice if fits else ''}") from error
        rest = [b for b in micro_batches if b >= rest[0]]
    return found | {b: boundaries_of(workload, b) for b in rest}


def fits_together(workload: Workload, micro_batch: int) -> bool:
    """Whether the layers take so many samples."""
    try:
        boundaries_of(workload, micro_batch)
    except WorkloadError:
        return False
    return True
