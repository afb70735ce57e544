"""Plans of torch's checkpoints for boxes of named tensors: what to write, and to read.

Called by `saver` and `loader`. A box that is all of its tensor is written as torch
writes one, so checkpoints of undivided state are as they ever were.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.distributed.checkpoint.default_planner import (
    DefaultLoadPlanner,
    DefaultSavePlanner,
)
from torch.distributed.checkpoint.metadata import (
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import (
    create_read_items_for_chunk_list,
)

from plimsoll_trainer.checkpoint.flat_range import Box


class SaveBoxes(DefaultSavePlanner):
    """Writes boxes."""

    def __init__(self, boxes: Iterable[Box] = (), *, is_coordinator: bool) -> None:
        """Take what this rank writes."""
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self.set_up_planner({}, None, is_coordinator)
        self._boxes = {box.index: box for box in boxes}

    def create_local_plan(self) -> SavePlan:
        """Write each of them."""
        self.plan = SavePlan([write_item(box) for box in self._boxes.values()])
        return self.plan

    def lookup_object(self, index: MetadataIndex) -> Tensor:
        """Numbers of a box."""
        return self._boxes[index].tensor


def write_item(box: Box) -> WriteItem:
    """A box as torch describes it."""
    is_whole = tuple(box.tensor.shape) == box.whole
    return WriteItem(
        index=box.index,
        type=WriteItemType.TENSOR if is_whole else WriteItemType.SHARD,
        tensor_data=TensorWriteData(
            chunk=box.chunk,
            properties=TensorProperties.create_from_tensor(box.tensor),
            size=torch.Size(box.whole),
        ),
    )


class LoadBoxes(DefaultLoadPlanner):
    """Reads boxes, whatever boxes their tensors were saved in."""

    def __init__(self, boxes: Iterable[Box], metadata: Metadata) -> None:
        """Take what is read here, and what the checkpoint has."""
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self.set_up_planner({}, metadata, is_coordinator=True)
        self._boxes = {box.index: box for box in boxes}
        self._saved = metadata.state_dict_metadata

    def create_local_plan(self) -> LoadPlan:
        """Read all that a saved box and one of these have in common."""
        items = []
        for box in self._boxes.values():
            saved = self._saved[box.name]
            assert isinstance(saved, TensorStorageMetadata)  # noqa: S101 - was checked
            items += create_read_items_for_chunk_list(box.name, saved, [box.chunk])
        return LoadPlan(items)

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        """Memory of a box."""
        return self._boxes[index].tensor
