"""The GPU of this machine as a target."""

from __future__ import annotations

from ...base.errors import TargetError
from ...runtime.cuda_driver import DeviceFacts, driver
from ...runtime.cuda_nvml import power_limit
from ...target import ARCHS, CudaTarget


def device_facts() -> DeviceFacts:
    """What the driver says of the device that this thread uses. Raises `TargetError`.

    No memory of the device is taken for that, as for a context.
    """
    found = driver()
    return found.facts()[found.current()]


def host_target() -> CudaTarget:
    """The device that this thread uses, as a resolved target.

    Raises `TargetError` where there is none, and for one that no code is made for.
    """
    return target_of(device_facts())


def target_of(facts: DeviceFacts) -> CudaTarget:
    """The target of a device: the newest architecture whose code it runs. Raises `TargetError`."""
    return CudaTarget(
        arch=newest_arch(facts.name, facts.capability),
        model=facts.name,
        sms=facts.sms,
        memory_bytes=facts.memory_bytes,
        l2_bytes=facts.l2_bytes,
        power_watts=power_limit(facts.pci_bus_id),
    )


def newest_arch(name: str, capability: tuple[int, int]) -> str:
    """The newest architecture whose code a device runs. Raises `TargetError`."""
    runs = [arch for arch in ARCHS if CudaTarget(arch=arch).runs_on(capability)]
    if not runs:
        raise TargetError(
            "{0} is sm_{1}{2}, which no code is made for; known: {3}",
            name,
            *capability,
            ", ".join(ARCHS),
            hint="use a device of one of these architectures",
        )
    return runs[-1]
