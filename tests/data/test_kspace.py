"""Raw k-space comes out of every format as it went in; damaged, foreign and hostile files end in one sentence."""

import h5py
import numpy as np
import pytest
import torch
from mri_helpers import header, scanned, write_bart, write_fastmri, write_ismrmrd

from firm.data.array_file import ArrayError
from firm.data.kspace import cut_middle, open_kspace

KSPACE, _, MAPS = scanned(images=2, coils=3, H=12, W=10)


def same(found, expected):
    torch.testing.assert_close(found, torch.from_numpy(np.asarray(expected, np.complex64)))


@pytest.mark.parametrize("write", [write_fastmri, write_bart, write_ismrmrd])
def test_what_was_written_is_read_image_by_image(write, tmp_path):
    found = open_kspace(write(tmp_path / "scan.h5", KSPACE))
    assert (found.count, found.coils, found.shape, found.image_shape) == (2, 3, (12, 10), (12, 10))
    for i in range(2):
        same(found.read(i), KSPACE[i])


def test_a_fastmri_file_has_a_mask_a_header_maps_or_a_single_coil(tmp_path):
    lines = np.arange(10) % 2
    xml = header(12, 10, image=(6, 10))
    path = write_fastmri(tmp_path / "a.h5", KSPACE, header=xml, mask=lines, maps=MAPS)
    found = open_kspace(path)
    assert found.image_shape == (6, 10)
    assert found.sampled.tolist() == (lines > 0).tolist()
    same(found.maps(1), MAPS)
    path = write_fastmri(tmp_path / "b.h5", KSPACE, maps=np.stack([MAPS, 2 * MAPS]))
    same(open_kspace(path).maps(1), 2 * MAPS)
    single = open_kspace(write_fastmri(tmp_path / "c.h5", KSPACE[:, 0]))
    assert single.coils == 1
    same(single.read(1), KSPACE[1, :1])


def test_ismrmrd_lines_noise_averages_and_asymmetric_echoes(tmp_path):
    noise = np.ones((3, 50), np.complex64) * np.arange(3)[:, None]

    def asymmetric(heads):
        heads["discard_pre"][1:], heads["discard_post"][1:] = 2, 1

    path = write_ismrmrd(tmp_path / "a.h5", KSPACE, lines=[0, 5, 9, 5], noise=noise, change=asymmetric)
    found = open_kspace(path)
    same(found.noise(), noise)
    expected = np.zeros_like(KSPACE[0])
    expected[:, 2:11, [0, 5, 9]] = KSPACE[1][:, 2:11, [0, 5, 9]]
    same(found.read(1), expected)

    def short(heads):  # an echo that begins late: its first sample is the third of a whole one
        heads["center_sample"] = 4

    part = write_ismrmrd(tmp_path / "b.h5", KSPACE[:, :, 2:], xml=header(12, 10), change=short)
    expected = KSPACE[0].copy()
    expected[:, :2] = 0
    same(open_kspace(part).read(0), expected)

    def calibration(heads):
        heads["flags"][::2] = 1 << 19

    for mode, kept in (("embedded", 10), ("separate", 5)):
        path = write_ismrmrd(tmp_path / f"{mode}.h5", KSPACE, header(12, 10, calibration=mode), change=calibration)
        assert int(open_kspace(path).read(0).ne(0).any(0).any(0).sum()) == kept


def test_the_middle_of_an_image():
    values = np.arange(10).reshape(1, 10)
    assert cut_middle(values, (1, 4)).tolist() == [[3, 4, 5, 6]]
    assert cut_middle(values[:, :9], (1, 3)).tolist() == [[3, 4, 5]]


def read_all(path):
    found = open_kspace(path)
    return [found.read(i) for i in range(found.count)]


def refused(path, match):
    with pytest.raises(ArrayError, match=match) as error:
        read_all(path)
    assert str(path.with_suffix("")) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("kspace", "more", "match"),
    [
        (KSPACE.real, {}, "must be complex"),
        (KSPACE[0, 0], {}, r"must be complex, \(images"),
        (KSPACE[:, :, :1], {}, "matrix of 1x10"),
        (KSPACE, {"mask": np.ones(9)}, "not 10 lines"),
        (KSPACE, {"mask": np.zeros(10)}, "nothing was measured"),
        (KSPACE, {"maps": MAPS[:2]}, "do not fit"),
        (KSPACE, {"header": "<a/>"}, "no encoding/encodedSpace"),
        (KSPACE, {"header": "no XML"}, "damaged"),
        (KSPACE, {"header": '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'}, "entities"),
        (KSPACE * np.nan, {}, "NaN"),
    ],
)
def test_fastmri_files_that_do_not_fit(kspace, more, match, tmp_path):
    refused(write_fastmri(tmp_path / "a.h5", kspace, **more), match)


def test_files_of_other_kinds_and_values_in_other_files(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["x"] = KSPACE
    refused(path, "neither")
    secret = tmp_path / "secret"
    secret.write_bytes(KSPACE.tobytes())
    with h5py.File(path, "w") as file:
        file.create_dataset("kspace", KSPACE.shape, "c8", external=[(str(secret), 0, KSPACE.nbytes)])
    refused(path, "other files")
    write_fastmri(tmp_path / "b.h5", KSPACE)
    with h5py.File(path, "w") as file:
        file["kspace"] = h5py.ExternalLink("b.h5", "kspace")
    refused(path, "neither")
    (tmp_path / "a.npy").write_bytes(b"1")
    refused(tmp_path / "a.npy", "not a file of raw k-space")
    refused(tmp_path / "none.h5", "no such file")


@pytest.mark.parametrize("write", [write_fastmri, write_bart, write_ismrmrd])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_files_that_are_cut_short(write, share, tmp_path):
    path = write(tmp_path / "scan.h5", KSPACE)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    refused(path, "damaged|empty|cut short|neither")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("12 10 1 3\n", "no line of dimensions"),
        ("# Dimensions\n12 10 1 4 1 1 1 1 1 1 1 1 1 2\n", "damaged or cut short"),
        ("# Dimensions\n99999999999999 99999999999999 1\n", "damaged or cut short"),
        ("# Dimensions\n12 10 2 3\n", "not two-dimensional"),
        ("# Dimensions\n12 10 1 3 2\n", "sets of maps"),
        ("# Dimensions\n360 2 1 1\n", None),
        ("# Dimensions\n-12 10\n", "no line of dimensions"),
    ],
)
def test_headers_of_bart_that_do_not_fit(text, match, tmp_path):
    path = write_bart(tmp_path / "a.cfl", KSPACE)
    path.with_suffix(".hdr").write_text(text)
    if match:
        refused(path, match)
    else:
        assert open_kspace(path).shape == (360, 2)
    path.with_suffix(".hdr").unlink()
    refused(path, "no such file")


def changed(name, value, of=slice(None)):
    def change(heads):
        (heads["idx"] if name in heads["idx"].dtype.names else heads)[name][of] = value

    return change


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"xml": header(12, 10, trajectory="radial")}, "NonUniformFourier"),
        ({"change": changed("kspace_encode_step_1", 99, 3)}, "outside its matrix"),
        ({"xml": header(8, 10)}, "outside its matrix"),
        ({"change": changed("center_sample", 60)}, "outside its matrix"),
        ({"change": changed("active_channels", 2, 3)}, "2, 3 coils"),
        ({"change": changed("active_channels", 4)}, "not 2 x 4 coils"),
        ({"change": changed("number_of_samples", 0)}, "holds"),
        ({"change": changed("kspace_encode_step_2", 1, 3)}, "three-dimensional"),
        ({"change": changed("flags", 1 << 18)}, "none of its"),
        ({"change": changed("flags", 1 << 21, 4)}, "echo-planar"),
        ({"xml": header(12, 10**7)}, "coils and a matrix"),
    ],
)
def test_ismrmrd_files_that_do_not_fit(options, match, tmp_path):
    refused(write_ismrmrd(tmp_path / "a.h5", KSPACE, **options), match)
