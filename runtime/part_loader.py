"""Who loads the parts of artifacts that other providers run, by the names of the providers.

`register_provider` adds a user's, whose module has to be imported before its artifacts are loaded.
Where the compiler is, that of `building/providers.py` does, whose providers compile too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias, TypeVar

from ..base.errors import BuildError, ProviderError, TilewrightError
from ..target import Target
from . import time_limit

Call: TypeAlias = Callable[..., Any]
"""Takes the inputs of a part, compact numpy arrays that cannot be written, by position, and
returns the output, or several in their order, in memory of their own. Threads call it at the same
time."""


class PartLoader(ABC):
    """Loads what a provider of this `name` has stored. It is the `Provider` of a deployment."""

    name: str
    timeout: float | None = None
    """The seconds that an answer may take, to compile or load a part, and to run one in a call.

    Beyond that a `ProviderError` says that it hangs, and it is refused until it comes back.
    """

    def version(self) -> str:
        """The version of what runs its parts here, which artifacts remember.

        Raises `ProviderError` where it is not installed.
        """
        return ""

    def takes(self, version: str) -> bool:
        """Whether parts that were stored with that version are loaded here."""
        return version == self.version()

    @abstractmethod
    def load(self, content: bytes, target: Target) -> Call:
        """A call of a stored part, for a resolved target. Raises what says why there is none."""


P = TypeVar("P", bound=PartLoader)
Registered = TypeVar("Registered", bound=PartLoader | type[PartLoader])

BUILT_IN = frozenset({"tilewright", "cuda", "reference", "onnxruntime", "openvino"})
"""Names that no provider of a user has."""
LOADERS: dict[str, PartLoader] = {}


def register_provider(provider: Registered) -> Registered:
    """Add a provider that loads parts of artifacts; a class may be decorated.

    A later one of its name replaces it. Raises `BuildError` for what is no provider with a name,
    and for the name of one that is built in.
    """
    own = provider_to_register(provider, PartLoader)  # type: ignore[type-abstract]
    LOADERS[own.name] = own
    return provider


def provider_to_register(provider: object, kind: type[P]) -> P:
    """The instance of a provider or of its class. Raises `BuildError` as `register_provider`."""
    own = provider() if isinstance(provider, type) else provider
    name = getattr(own, "name", None)
    if not isinstance(own, kind) or not isinstance(name, str) or not name:
        raise BuildError("expected a Provider with a name, found {0!r:.80}", own)
    if name in BUILT_IN:
        raise BuildError("there is a provider {0} already", name)
    return own


def load_part(provider: str, version: str, content: bytes, target: Target, **data: Any) -> Call:
    """The call of a part that was stored with that version of a provider.

    What it raises later has this data. Raises `ProviderError` where there is no such provider or
    version, or it does not load the part.
    """
    from . import onnx_parts  # noqa: F401  # registers those that are built in

    loader = LOADERS.get(provider)
    if loader is None:
        raise ProviderError(
            "the artifact has a part of the provider {0}, which nobody has registered", provider,
            hint="import the module that registers it before you load the artifact",
            provider=provider,
        )  # fmt: skip
    within = partial(time_limit.within, loader.timeout, provider)
    try:
        found = within("for its version", loader.version)
        if not loader.takes(version):
            raise ProviderError(
                "the artifact has a part of {0} {1}, found {2}", provider, version, found,
                hint=f"install {provider} {version}, or build the artifact anew",
                provider=provider, expected=version, found=found,
            )  # fmt: skip
        call = within("to load a part", partial(loader.load, content, target))
    except ProviderError:
        raise
    except Exception as error:  # whatever a provider raises
        told = error.first_line if isinstance(error, TilewrightError) else error
        raise ProviderError(
            "the provider {0} does not load its part: {1}", provider, told, provider=provider
        ) from error
    if not callable(call):
        raise ProviderError(
            "the provider {0}: expected a call of a part, found {1!r:.80}", provider, call,
            provider=provider,
        )  # fmt: skip
    return limited(loader, call, **data)


def limited(provider: PartLoader, call: Call, **data: Any) -> Call:
    """A call of a part that raises `ProviderError`, with this data, beyond the `timeout` that the
    provider has then."""

    def checked(*arguments: Any) -> Any:
        run = partial(call, *arguments)
        return time_limit.within(provider.timeout, provider.name, "to run a part", run, **data)

    return checked
