"""The paper's numbers, as printed: what our tables stand beside."""

from __future__ import annotations

from firm.tasks import tables

METRICS = ("psnr", "ssim", "lpips")
Scores = dict[str, dict[str, dict[str, float]]]  # method -> task -> metric

# Table 1, CelebA, 100 test images: PSNR, SSIM, LPIPS in the order of the five tasks; - where a method does not apply.
_CELEBA = """
Degraded    20.00 .348 .371   27.81 .740 .125   10.25 .183 .827   11.95 .196 1.041  22.26 .743 .213
PnP-GS      32.54 .908 .035   33.97 .924 .041   31.23 .890 .065   29.20 .875 .069   - - -
PnP-HQS     32.17 .897 .044   34.87 .946 .033   32.33 .911 .075   32.81 .945 .023   - - -
ISTA-Net    - - -             35.38 .950 .035   33.54 .937 .038   34.70 .960 .022   - - -
DiffPIR     31.12 .883 .060   32.68 .910 .060   31.46 .893 .034   31.69 .916 .025   - - -
I2SB        - - -             33.25 .924 .012   31.92 .891 .014   32.80 .938 .011   28.72 .803 .042
OT-ODE      30.49 .858 .032   32.96 .920 .029   31.34 .903 .027   28.65 .870 .051   29.37 .919 .038
D-Flow      26.01 .606 .092   31.21 .854 .037   30.44 .843 .026   33.61 .942 .015   30.59 .898 .027
Flow-Priors 29.31 .767 .135   31.51 .857 .056   28.36 .715 .100   32.87 .943 .019   30.06 .859 .048
PnP-Flow1   31.75 .904 .044   34.48 .936 .039   31.04 .901 .045   33.02 .944 .018   30.45 .933 .037
PnP-Flow5   32.24 .910 .056   34.80 .941 .046   31.44 .905 .056   33.95 .953 .022   31.06 .939 .043
Flower1-OT  32.22 .913 .033   34.95 .947 .025   32.30 .922 .034   33.05 .944 .017   31.17 .945 .022
Flower5-OT  33.07 .925 .038   35.65 .954 .031   33.03 .931 .039   33.92 .953 .020   31.85 .952 .023
FIRM_N=2    33.67 .932 .034   36.04 .957 .029   34.39 .949 .028   35.03 .963 .018   33.25 .960 .022
FIRM_N=4    33.24 .928 .034   35.78 .956 .028   33.96 .946 .026   34.67 .962 .016   32.57 .958 .021
FIRM_N=10   32.26 .914 .032   35.03 .950 .023   33.13 .937 .022   33.98 .956 .014   31.85 .953 .020
FIRM_N=25   31.56 .901 .028   31.46 .848 .026   30.39 .837 .029   33.42 .951 .013   31.33 .947 .020
"""

# Efficiency table, CelebA deblurring, batch 1, one RTX A6000: seconds, peak memory in MB, NFE (none for D-Flow).
COST: dict[str, tuple[float, float, int | None]] = {
    "OT-ODE": (6.37, 743, 180),
    "D-Flow": (299.25, 6124, None),
    "Flow-Priors": (41.27, 2728, 100),
    "PnP-Flow1": (2.33, 192, 100),
    "PnP-Flow5": (11.46, 192, 500),
    "Flower1-OT": (2.67, 193, 100),
    "Flower5-OT": (13.03, 193, 500),
    "FIRM N=2": (0.24, 331, 10),
    "FIRM N=4": (0.50, 331, 20),
    "FIRM N=10": (1.21, 331, 50),
    "FIRM N=25": (3.13, 331, 125),
}


def celeba() -> Scores:
    """Table 1."""
    found: Scores = {}
    for line in _CELEBA.strip().splitlines():
        label, *cells = line.split()
        rows = zip(tables(), zip(*[iter(cells)] * 3, strict=True), strict=True)
        found[label.replace("_", " ")] = {
            task: dict(zip(METRICS, map(float, values), strict=True)) for task, values in rows if "-" not in values
        }
    return found
