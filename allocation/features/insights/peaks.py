"""Peak rates of tensor cores, for estimates of what GPUs computed. Pure."""

import re

# Dense FP16 or BF16 with FP32 sums, in TFLOPS, from NVIDIA's data sheets of each product. The first
# name that the product's has wins. One that is missing has no estimate.
_PEAKS = (
    ("GB200", 2_500),
    ("B200", 2_250),
    ("H200 NVL", 835),
    ("H200", 989),
    ("H100 NVL", 835),
    ("H100 PCIe", 756),
    ("H100", 989),
    ("A100", 312),
    ("A30", 165),
    ("A40", 149),
    ("A10", 125),
    ("L40S", 362),
    ("L40", 181),
    ("L4", 121),
    ("V100", 125),
    ("T4", 65),
)


def peak_tflops(product: str) -> int | None:
    """Returns the peak of a product such as `NVIDIA H100 80GB HBM3`; None: not known."""
    return next((peak for name, peak in _PEAKS if re.search(rf"\b{name}\b", product, re.IGNORECASE)), None)
