"""The sparse operators, made known to PyTorch: schema, kernels, fake kernels, gradients, batching."""

import torch

from rowgrad._ops import Operator
from rowgrad.torch._autograd import Gradient
from rowgrad.torch._batching import vmap_rule
from rowgrad.torch._fake import fake_kernel
from rowgrad.torch._kernels import cpu_kernel, device_kernel
from rowgrad.torch._schema import NAMESPACE, schema, snake_case, supported

# Devices other than the CPU, by the names of their dispatch keys.
DEVICES = ("CUDA", "MPS", "XPU", "HPU", "XLA", "PrivateUse1")

# PyTorch drops what a library registered when the library goes; this one stays.
LIBRARY = torch.library.Library(NAMESPACE, "DEF")


def register() -> None:
    """Define every operator, then what belongs to it: a gradient may call any of them."""
    for operator in supported():
        LIBRARY.define(schema(operator), tags=(torch.Tag.pt2_compliant_tag,))
    for operator in supported():
        _implement(operator)


def _implement(operator: Operator) -> None:
    name = snake_case(operator.name)
    on_cpu = cpu_kernel(operator)
    LIBRARY.impl(name, on_cpu, "CPU")
    elsewhere = device_kernel(operator)
    for device in DEVICES:
        LIBRARY.impl(name, elsewhere, device)
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake_kernel(operator), lib=LIBRARY)
    LIBRARY.impl(name, Gradient(operator, on_cpu).kernel(), "Autograd", with_keyset=True)
    torch.library.register_vmap(f"{NAMESPACE}::{name}", vmap_rule(operator), lib=LIBRARY)
