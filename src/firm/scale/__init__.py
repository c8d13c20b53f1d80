"""Many machines and huge arrays, on the engines that run there: torchrun, Ray, Dask. Each is an extra."""

from firm.scale.dask import restore_array as restore_array
