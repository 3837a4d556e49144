"""Share one stream among devices: every rank reads and encodes a part of each batch.

    torchrun --nproc-per-node 2 examples/many_devices.py

Together the ranks learn what one process learns from the whole batches. To show this, the first
rank then runs the whole batches by itself. Without torchrun, a single process runs.
"""

import os

import torch
import torch.distributed as dist

import dasp
from dasp.data.shapes import SoundingShapes
from dasp.streams import Domain
from dasp.streams.domains import DomainDamage

BATCH, BATCHES = 64, 4


def run(data: SoundingShapes, rank: int, size: int, **options) -> tuple[int, dasp.Adaptation, list]:
    """Adapt on this rank's part of every batch; return the number of correct predictions."""
    tta = dasp.adapt(dasp.load_model("sounding_shapes_0"), "dasp", lr=1e-3, **options)
    right, biased = 0, []
    for batch in torch.arange(len(data)).split(BATCH):
        part = [data[int(index)] for index in batch.tensor_split(size)[rank]]
        names = tta.model.modalities
        out = tta({name: torch.stack([sample.inputs[name] for sample in part]) for name in names})
        labels = torch.tensor([sample.label for sample in part])
        right += int((out.logits.argmax(dim=1) == labels).sum())
        biased.append(sorted(out.diagnosis.biased))
    return right, tta, biased


def main() -> None:
    shared = "RANK" in os.environ  # set by torchrun
    if shared:
        dist.init_process_group("gloo")  # "nccl" where each rank has a GPU
        torch.set_num_threads(1)
    rank, size = (dist.get_rank(), dist.get_world_size()) if shared else (0, 1)
    noise = DomainDamage(Domain("audio", "gaussian_noise", 5), seed=0)
    data = SoundingShapes("test", BATCH * BATCHES, damage=noise)
    right, tta, biased = run(data, rank, size, group="world" if shared else None)
    found = [(right, biased, tta.memory.checksum())] * size
    if shared:
        dist.all_gather_object(found, found[rank])
        dist.destroy_process_group()
    if rank > 0:
        return
    total = sum(right for right, _, _ in found)
    print(f"{size} rank(s): {total} of {len(data)} right; diagnoses {biased}")
    if not shared:
        return
    print("all ranks agree on them:", all(other == biased for _, other, _ in found))
    print("all ranks have the same weights:", len({weights for _, _, weights in found}) == 1)
    alone, single, expected = run(data, 0, 1)
    ours, its = tta.state()["tensors"], single.state()["tensors"]
    apart = max(float((ours[k] - its[k]).abs().max()) for k in its if k.startswith("weight/"))
    print(f"one process: {alone} of {len(data)} right; diagnoses {expected}")
    print(f"largest difference of a weight: {apart:.1e}")


if __name__ == "__main__":
    main()
