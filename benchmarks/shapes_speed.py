"""Measure how fast sounding shapes are drawn on one core: python benchmarks/shapes_speed.py."""

import time

import torch

from dasp.data.shapes import SoundingShapes

COUNT = 500


def rate(make):
    make(0)
    start = time.perf_counter()
    for index in range(COUNT):
        make(index)
    return COUNT / (time.perf_counter() - start)


def main():
    torch.set_num_threads(1)
    shapes = SoundingShapes("test", COUNT)
    print(f"frames a second          {rate(shapes.frame):8.0f}")
    print(f"sounds a second          {rate(shapes.wave):8.0f}")
    print(f"pairs a second           {rate(lambda i: (shapes.frame(i), shapes.wave(i))):8.0f}")
    print(f"pairs as tensors a second{rate(shapes.__getitem__):8.0f}")


if __name__ == "__main__":
    main()
