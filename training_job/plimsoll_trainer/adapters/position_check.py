"""Whether a model has a row for each position of a sample, found by trying.

In: an `Anatomy`. A table of positions may begin behind those of padding, as that of
RoBERTa does, and then it is shorter than its configuration says: a device would stop in
the first step. So the first layer is run with tables that look at their indices alone.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from plimsoll_trainer.adapters.model_anatomy import Anatomy
from plimsoll_trainer.adapters.model_copies import build_passage
from plimsoll_trainer.adapters.model_parts import Standing, nothing
from plimsoll_trainer.adapters.model_tasks import blank_inputs
from plimsoll_trainer.adapters.model_watch import named
from plimsoll_trainer.errors import WorkloadError, described

BEYOND = "out of bounds"
"""In the messages of torch about an index."""


class Looking(Standing):
    """Looks at its indices in place of a table."""

    def __init__(self, table: nn.Embedding) -> None:
        """Take the place of a table, which holds no bytes."""
        super().__init__(table)
        self._num_rows, self._width = table.num_embeddings, table.embedding_dim

    def forward(self, rows: Tensor) -> Tensor:
        """[...] -> [..., width].

        Raises:
            IndexError: there is no such row.
        """
        asked = int(rows.max())
        if asked >= self._num_rows:
            raise IndexError(f"row {asked} of {self._num_rows} is {BEYOND}")
        return nothing(torch.empty(()), (*rows.shape, self._width), torch.float32)


@torch.no_grad()
def check_positions(anatomy: Anatomy) -> None:
    """Refuse samples that are longer than a table of the model.

    A first layer that cannot be tried is let go.

    Raises:
        WorkloadError: names the row that there is not, and what to do.
    """
    tables = {
        id(module): Looking(module)
        for path in anatomy.before
        for module in anatomy.organs[path].modules()
        if isinstance(module, nn.Embedding)
    }
    with torch.random.fork_rng(devices=[]):
        try:
            layer = build_passage(anatomy, 0, tables)
            shape = (1, *anatomy.sample)
            layer(blank_inputs(anatomy.task, anatomy.model, shape, "cpu"))
        except (IndexError, RuntimeError) as error:
            if BEYOND in str(error):
                raise WorkloadError(
                    f"sequence_length {anatomy.sample[0]} is too long for "
                    f"{named(anatomy.model.config)} ({described(error)}): lower it, or "
                    "raise max_position_embeddings"
                ) from error
        except Exception:  # noqa: BLE001 - their code, in a form it was not made for
            return
