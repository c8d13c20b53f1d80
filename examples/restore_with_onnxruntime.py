"""Remove noise from a picture with onnxruntime, numpy and Pillow alone: neither torch nor FIRM is needed.

Write the file first, where FIRM is:     firm export photo photo.onnx --task denoising
Then, wherever onnxruntime is:           python restore_with_onnxruntime.py photo.onnx noisy.png restored.png 25

The last number is the noise, its standard deviation in gray levels of 255. The file takes measurements y and images in
[-1, 1] as (batch, channels, height, width), the noise that the sampler starts from, and the noise level of y. Height
and width must be multiples of the network's stride: the picture is extended by its mirror image, and cut again.
"""

import sys

import numpy as np
import onnxruntime
from PIL import Image


def restore(model: str, picture: str, result: str, gray_levels: float, seed: int = 0) -> None:
    """Restore one picture."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    stride = int(session.get_modelmeta().custom_metadata_map["stride"])
    pixels = np.asarray(Image.open(picture).convert("RGB"), np.float32)
    height, width, _ = pixels.shape
    padded = np.pad(pixels, ((0, -height % stride), (0, -width % stride), (0, 0)), "reflect")
    y = padded.transpose(2, 0, 1)[None] / 127.5 - 1
    noise = np.random.default_rng(seed).standard_normal(y.shape, np.float32)
    sigma = np.array([2 * gray_levels / 255], np.float32)
    (x,) = session.run(None, {"y": y, "noise": noise, "sigma": sigma})
    image = ((x[0] + 1) * 127.5).clip(0, 255).round().astype(np.uint8).transpose(1, 2, 0)
    Image.fromarray(image[:height, :width]).save(result)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit("use: python restore_with_onnxruntime.py MODEL.onnx PICTURE RESULT GRAY_LEVELS")
    restore(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]))
