"""What the operators' files share: random input, what is wanted of an output, and how near is near enough."""

import math
import random

import torch

HALF = (torch.float16, torch.bfloat16)
FLOATS = (torch.float32, *HALF)
WIDE = torch.float64
# Half a unit in the last place of the 16-bit types, with room for f32 arithmetic on the way; for f32 a few of its roundings.
EPS = {torch.float32: 4e-6, torch.float16: 0.55 * 2**-10, torch.bfloat16: 0.55 * 2**-7}
# What makes an operator's input, settings and wanted outputs, and of which types: a name and that.
OPS = []


def op(*names, types=FLOATS):
    """Enters a function of the type (and the name) for each of these operators."""

    def enter(function):
        OPS.extend((name, function, types) for name in names)
        return function

    return enter


def name_of(t):
    return str(t).removeprefix("torch.")


def size(most=300):
    """Mostly small and odd, sometimes on a boundary."""
    return random.choice([1, random.randint(1, 9), random.randint(1, most), random.choice([8, 16, 32, 64, 128, 256])])


def shape():
    return [random.randint(1, 5) for _ in range(random.randint(0, 2))] + [size(40), size(3000)]


def rand(t, *dims, scale=1.0):
    return (torch.randn(*dims) * scale).to(t)


def ints(low, high, *dims, t=torch.int32):
    return torch.randint(low, high, dims, dtype=t)


def wide(*tensors):
    """In f64, with gradients."""
    return [x.to(WIDE).requires_grad_() for x in tensors]


class Want:
    """A value, and what its error may be beside a rounding: what rounding its terms comes to. Of an exact one, nothing."""

    def __init__(self, value, around=0.0, exact=False):
        self.value, self.around, self.exact = value.detach(), torch.as_tensor(around, dtype=WIDE).detach(), exact

    def share(self, got):
        """The greatest error as a share of what is tolerated; infinite where one is NaN or infinite and the other is not the same."""
        if got.shape != self.value.shape:
            return math.inf
        if self.exact:
            return 0.0 if torch.equal(got.to(WIDE), self.value.to(WIDE)) else math.inf
        got_wide = got.to(WIDE)
        # Numbers below the normal ones of f16 are rounded to a fixed step; what is exact here may be a rounding of f64 there.
        tolerance = EPS.get(got.dtype, 0.0) * self.value.abs() + self.around + (2.0**-25 if got.dtype == torch.float16 else 1e-12)
        same = (got_wide == self.value) | (got_wide.isnan() & self.value.isnan())
        errors = torch.where(same, 0.0, (got_wide - self.value).abs() / tolerance)
        return errors.nan_to_num(nan=math.inf).max().item() if errors.numel() else 0.0


def product(a, b):
    """a · bᵀ, and what rounding its terms comes to."""
    a, b = a.to(WIDE), b.to(WIDE)
    return Want(a @ b.transpose(-1, -2), 2e-6 * (a.abs() @ b.abs().transpose(-1, -2)))


def of_four_bits(rows, d):
    """Integers of 4 bits, two a byte, with scales and zero points, and what they stand for."""
    q, scales = ints(0, 16, rows, d), torch.rand(rows, -(-d // 128)) / 4 + 0.01
    zeros = ints(0, 16, *scales.shape, t=torch.uint8) if random.random() < 0.5 else None
    pairs = torch.nn.functional.pad(q, (0, d % 2)).reshape(rows, -1, 2)
    each = lambda x: x.to(WIDE).repeat_interleave(128, 1)[:, :d]  # noqa: E731
    values = (q - (8 if zeros is None else each(zeros))) * each(scales)
    given = {"q": (pairs[..., 0] + 16 * pairs[..., 1]).to(torch.uint8), "scales": scales}
    return given | ({} if zeros is None else {"zeros": zeros}), values
