"""A workload from any module: its forward pass is captured, and cut into layers.

construction  a record of how a module was built, from which tensors are built again
fake_modules  the module on fake tensors, and how a layer gets real ones
call          how the module is called, and which tensor of its result is the output
refusals      messages for a module that cannot be captured
lost          what a captured graph would lose, which is refused
inlining      blocks under torch.no_grad, written out
capture       the forward pass as a graph, for any number of samples
flow          what values follow from, and whose memory they have
crossings     which are alive between two operators, and where no cut may be
cuts          where the graph is cut
parts         layers as parts of the graph: what each runs, takes and gives
modes         operators that do something else in evaluation
slices        the graph of one layer, as a module
kinds         equal layers, by their graphs
names         names of layers
chain         all of it: from_module
"""

from __future__ import annotations

from plimsoll_trainer.adapters.any_module.chain import from_module

__all__ = ["from_module"]
