"""Many machines, arrays larger than memory, and files for other runtimes: torchrun, Ray, Dask, ONNX; each an extra."""

from firm.scale.dask import restore_array as restore_array
