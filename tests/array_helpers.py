"""Arrays of random numbers, and files of them in every format that is read."""

import numpy as np
import pytest
import torch

from firm.data import load_images

RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.uniform(-1, 1, shape).astype(np.float32)


def complexes(*shape):
    return ((floats(*shape) + 1j * floats(*shape)) / 2).astype(np.complex64)


def write(path, array, name="x"):
    """Save in the format of the file name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npy":
        np.save(path, array)
    elif path.suffix == ".npz":
        np.savez_compressed(path, **{name: array})
    elif path.suffix == ".pt":
        torch.save(torch.from_numpy(array), path)
    else:
        with pytest.importorskip("h5py").File(path, "w") as file:
            file.create_dataset(f"group/{name}", data=array, chunks=True)
    return path


def load(root, dataset="arrays", **options):
    return load_images(dataset, root, **{"size": None, "progress": False, **options})


FORMATS = [".npy", ".npz", ".pt", ".h5", ".hdf5"]
