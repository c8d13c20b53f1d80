"""Crops against slices of Python and against torch's interpolation."""

import pytest
import torch
from torch.nn.functional import interpolate

from firm.data import crop_at, crop_scaled, gather_crops
from firm.data.crops import positions

TOP, LEFT = torch.tensor([0, 3, 5, 2]), torch.tensor([7, 0, 1, 4])


def sliced(images, top, left, size):
    return torch.stack([x[:, t : t + size, j : j + size] for x, t, j in zip(images, top, left, strict=True)])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64, torch.bfloat16, torch.complex64])
def test_crops_are_slices(dtype):
    data, index = (torch.rand(9, 3, 13, 15) * 255).to(dtype), torch.tensor([8, 0, 4, 4])
    out = gather_crops(data, index, TOP, LEFT, 8)
    assert out.dtype == dtype
    assert torch.equal(out, sliced(data[index], TOP, LEFT, 8))
    assert torch.equal(crop_at(data[index], TOP, LEFT, 8), out)
    strided = data[:, :, 1:, 2:]
    assert torch.equal(gather_crops(strided, index, TOP * 0 + 4, LEFT * 0 + 5, 8), strided[index][..., 4:12, 5:13])


def test_every_place_and_none_outside():
    images = torch.rand(1, 1, 8, 8)
    assert torch.equal(crop_at(images, torch.tensor([0]), torch.tensor([0]), 8), images)
    for top in (-8, -1, 0, 2, 4, 5):
        for left in (-8, -1, 0, 2, 4, 5):
            place = torch.tensor([top]), torch.tensor([left])
            if 0 <= min(top, left) <= max(top, left) <= 4:
                assert torch.equal(crop_at(images, *place, 4), images[:, :, top : top + 4, left : left + 4])
            else:
                with pytest.raises(IndexError):
                    crop_at(images, *place, 4)
    for size in (9, 0):
        with pytest.raises(ValueError, match=f"crops of {size} pixels do not fit into images of 8"):
            crop_at(images, torch.tensor([0]), torch.tensor([0]), size)


def test_positions_reach_every_place_equally():
    u = (torch.arange(1000) + 0.5) / 1000
    assert positions(u, 12, 8).bincount().tolist() == [200] * 5
    assert positions(torch.ones(1), 12, 8).tolist() == [4]
    assert positions(torch.rand(5), 8, 8).tolist() == [0] * 5
    with pytest.raises(ValueError, match="do not fit"):
        positions(u, 7, 8)


def test_scaled_crops_of_the_same_size_are_the_very_pixels():
    images = torch.randn(4, 3, 201, 300)
    top, left = torch.tensor([0.0, 3.0, 73.0, 2.0]), torch.tensor([172.0, 0.0, 1.0, 4.0])
    out = crop_scaled(images, top, left, torch.full((4,), 128.0), 128)
    assert torch.equal(out, sliced(images, top.long(), left.long(), 128))
    assert torch.equal(crop_scaled(images, top.long(), left.long(), torch.full((4,), 128), 128), out)


@pytest.mark.parametrize(("side", "size"), [(12, 8), (6, 8), (16, 8), (8, 16)])
def test_scaled_crops_are_interpolations_of_slices(side, size):
    """Away from the border, where a slice repeats its edge and a crop knows the neighbors."""
    images = torch.rand(3, 2, 40, 50, dtype=torch.float64)
    top, left = torch.tensor([4, 9, 20]), torch.tensor([30, 4, 11])
    out = crop_scaled(images, top, left, torch.full((3,), side), size)
    alone = interpolate(sliced(images, top, left, side), size=(size, size), mode="bicubic", align_corners=False)
    edge = -(-2 * size // side)
    inner = slice(edge, size - edge)
    torch.testing.assert_close(out[..., inner, inner], alone[..., inner, inner])


def test_each_sample_has_its_own_square_and_fractions_count():
    """On a plane the values say where each pixel was taken (within 0.05: torch's bicubic kernel bends planes)."""
    y, x = torch.meshgrid(torch.arange(40.0), torch.arange(50.0), indexing="ij")
    images = torch.stack([y, x])[None].expand(3, -1, -1, -1)
    top, left, side = torch.tensor([4.25, 10.0, 5.5]), torch.tensor([3.0, 20.5, 7.0]), torch.tensor([10.0, 12.5, 20.0])
    out = crop_scaled(images, top, left, side, 10)
    place = (torch.arange(10) + 0.5) * side[:, None] / 10 - 0.5
    torch.testing.assert_close(out[:, 0], (top[:, None] + place)[:, :, None].expand(3, 10, 10), atol=0.05, rtol=0)
    torch.testing.assert_close(out[:, 1], (left[:, None] + place)[:, None, :].expand(3, 10, 10), atol=0.05, rtol=0)
    one = crop_scaled(images[1:2], top[1:2], left[1:2], side[1:2], 10)
    torch.testing.assert_close(one, out[1:2])


def test_beyond_the_border_the_edge_is_repeated():
    images = torch.full((1, 1, 8, 8), 3.0)
    out = crop_scaled(images, torch.tensor([-2.0]), torch.tensor([4.0]), torch.tensor([8.0]), 8)
    torch.testing.assert_close(out, images)


@pytest.mark.cuda
def test_crops_in_a_cuda_graph():
    data = torch.randint(0, 256, (9, 2, 40, 50), dtype=torch.uint8, device="cuda")

    def draw():
        index = (torch.rand(4, device="cuda") * 9).long()
        top, left = (positions(torch.rand(4, device="cuda"), n, 16) for n in (40, 50))
        side = 16 + 8 * torch.rand(4, device="cuda")
        scaled = crop_scaled(data[index].float(), top * 0, left * 0, side, 16)
        return gather_crops(data, index, top, left, 16), scaled, index, top, left, side

    draw()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = draw()
    seen = set()
    for _ in range(5):
        graph.replay()
        crops, scaled, index, top, left, side = (x.cpu() for x in recorded)
        assert torch.equal(crops, sliced(data.cpu()[index], top, left, 16))
        expected = crop_scaled(data.cpu()[index].float(), top * 0, left * 0, side, 16)
        torch.testing.assert_close(scaled, expected, atol=0.05, rtol=1e-3)
        seen.add(tuple(top.tolist() + left.tolist()))
    assert len(seen) == 5
