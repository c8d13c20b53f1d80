"""Small volumes of every format, made by the libraries that read them."""

from pathlib import Path

import nibabel
import numpy as np
import tifffile
import zarr
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

SIZE = 20, 24


def values(slices=5, seed=0, top=4096):
    return np.random.default_rng(seed).integers(0, top, (slices, *SIZE)).astype(np.uint16)


def dicom(folder: Path, stored, spacing=2.5, **tags) -> Path:
    """A CT series whose files are in another order than its slices; intercept -1024, 12 bits."""
    folder.mkdir()
    series = generate_uid()
    for k, i in enumerate(np.random.default_rng(0).permutation(len(stored))):
        meta = FileMetaDataset()
        meta.TransferSyntaxUID, meta.MediaStorageSOPClassUID = ExplicitVRLittleEndian, CTImageStorage
        meta.MediaStorageSOPInstanceUID = generate_uid()
        image = Dataset()
        image.file_meta = meta
        about = {
            "SOPClassUID": CTImageStorage, "SOPInstanceUID": meta.MediaStorageSOPInstanceUID, "StudyInstanceUID": "1.2",
            "SeriesInstanceUID": series, "Modality": "CT", "PatientName": "Nobody", "InstanceNumber": int(i) + 1,
            "ImagePositionPatient": [0, 0, spacing * float(i)], "ImageOrientationPatient": [1, 0, 0, 0, 1, 0],
            "PixelSpacing": [0.7, 0.6], "ImageType": ["ORIGINAL", "PRIMARY", "AXIAL"], "SamplesPerPixel": 1,
            "PhotometricInterpretation": "MONOCHROME2", "Rows": SIZE[0], "Columns": SIZE[1], "BitsAllocated": 16,
            "BitsStored": 12, "HighBit": 11, "PixelRepresentation": 0, "RescaleSlope": 1, "RescaleIntercept": -1024,
        }  # fmt: skip
        for name, value in {**about, **tags}.items():
            setattr(image, name, value(int(i)) if callable(value) else value)
        image.PixelData = stored[i].astype("<u2").tobytes()
        image["PixelData"].VR = "OW"
        image.save_as(folder / f"image{k}", enforce_file_format=True)
    return folder


def nifti(path: Path, array, dtype=None) -> Path:
    """An array (slices, H, W) as x, y, z."""
    affine = np.array([[-0.7, 0, 0, 5], [0, 0.8, 0.1, 6], [0, -0.1, 2, 7], [0, 0, 0, 1]])
    image = nibabel.Nifti1Image(array.transpose(2, 1, 0), affine)
    if dtype is not None:
        image.set_data_dtype(dtype)  # the library scales
    image.header.set_xyzt_units("mm")
    nibabel.save(image, path)
    return path


def ome_tiff(path: Path, array, axes="ZYX", **about) -> Path:
    sizes = {"PhysicalSizeX": 0.1, "PhysicalSizeY": 0.2, "PhysicalSizeZ": 0.5}
    tifffile.imwrite(path, array, ome=True, metadata={"axes": axes, **sizes, **about})
    return path


def ome_zarr(path: Path, array) -> Path:
    """An array (c, z, y, x), as OME-Zarr 0.4."""
    units = {"z": 0.5, "y": 0.2, "x": 0.1}
    axes = [{"name": "c", "type": "channel"}, *({"name": n, "type": "space", "unit": "micrometer"} for n in units)]
    scale = {"type": "scale", "scale": [1.0, *units.values()]}
    level = {"path": "0", "coordinateTransformations": [scale]}
    about = {"multiscales": [{"version": "0.4", "axes": axes, "datasets": [level]}]}
    group = zarr.create_group(str(path), zarr_format=2, attributes=about)
    group.create_array("0", shape=array.shape, dtype=array.dtype, chunks=(1, 1, 16, 16))[:] = array
    return path
