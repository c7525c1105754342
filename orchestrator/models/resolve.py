"""From what a user writes (`openai:gpt-4.1-mini`, `ollama:qwen3`, `scripted:demo.jsonl`, a table's name) to a model.

Reads configuration and environment, connects nothing, and imports HTTP only for a model that needs it.
"""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from orchestrator.config.models import ModelSettings
from orchestrator.config.names import did_you_mean, listed
from orchestrator.errors import ConfigurationError
from orchestrator.messages import Prices
from orchestrator.models.anthropic import ANTHROPIC_URL
from orchestrator.models.base import Codec, Model, ModelOptions
from orchestrator.models.chat import OPENAI_URL, ChatCodec
from orchestrator.models.flavours import flavour_of
from orchestrator.models.pace import Rates
from orchestrator.models.prices import Listed, look_up
from orchestrator.models.scripted import RecordedModel

OPENAI_KEY, ANTHROPIC_KEY = "OPENAI_API_KEY", "ANTHROPIC_API_KEY"
VENDORS = ("openai", "anthropic", "ollama")
OFFICIAL = ("api.openai.com", "api.anthropic.com")
OLLAMA_PORT = 11434
LOOPBACK = ("localhost", "127.0.0.1", "::1")
FORMS = (
    "openai:NAME, anthropic:NAME, ollama:NAME, scripted:FILE, or the name of a [models.NAME] table of orchestrator.toml"
)
NO_MODEL = """no model is configured. The three shortest ways on:
  1. with a key:           export OPENAI_API_KEY=…   and add  --model openai:NAME
                           (or ANTHROPIC_API_KEY      and      --model anthropic:NAME)
  2. a model of your own:  ollama pull NAME          and add  --model ollama:NAME
  3. without any model:    make demo                 (a recorded run; --model scripted:FILE plays your own)
ORCHESTRATOR_MODEL, or `model` in orchestrator.toml, saves the flag."""


_KEYS = {"openai": (OPENAI_KEY, OFFICIAL[0]), "anthropic": (ANTHROPIC_KEY, OFFICIAL[1])}


def resolve(
    spec: str | None,
    models: Mapping[str, ModelSettings],
    environ: Mapping[str, str],
    *,
    temperature: float | None = None,
) -> Model:
    """The model that `spec` names; `temperature` (a card's) goes before the configured one.

    Raises:
        ConfigurationError: there is no such model, its key is missing, or its recording cannot be used.
    """
    if not spec or not (spec := spec.strip()):
        raise ConfigurationError(NO_MODEL)
    form, colon, name = spec.partition(":")
    if settings := models.get(spec):
        return _served(settings.model or spec, settings, f"[models.{spec}]", environ, temperature)
    if colon and name and form == "scripted":
        return RecordedModel(Path(name).expanduser())
    if colon and name and form in VENDORS:
        return _served(name, ModelSettings(provider=form), f"model {spec!r}", environ, temperature)
    if colon and form in (*VENDORS, "scripted"):
        raise ConfigurationError(f"model {spec!r} names nothing after the colon. A model is one of: {FORMS}.")
    hint = did_you_mean(form if colon else spec, [*models, *VENDORS, "scripted"])
    tables = f" Tables here: {listed(models)}." if models else ""
    raise ConfigurationError(f"model {spec!r} is not known.{hint} A model is one of: {FORMS}.{tables}")


def rates_of(settings: ModelSettings) -> Rates:
    """How often a model may be asked."""
    return Rates(
        requests_per_minute=settings.requests_per_minute,
        tokens_per_minute=settings.tokens_per_minute,
        parallel=settings.parallel,
    )


def plain_codec(name: str) -> Codec:
    """How requests are written for a model of which only the name is known."""
    return ChatCodec(name, flavour=flavour_of(name, OPENAI_URL))


def _served(
    name: str, settings: ModelSettings, where: str, environ: Mapping[str, str], temperature: float | None
) -> Model:
    base_url = settings.base_url or _default_url(settings.provider, where, environ)
    key_name = settings.api_key_env or _default_key(settings, base_url)
    key = environ.get(key_name, "").strip() if key_name else ""
    official = urlsplit(base_url).hostname in OFFICIAL
    if not key and key_name and (official or settings.api_key_env):
        raise ConfigurationError(f"{where} needs a key: set the environment variable {key_name}.")
    from orchestrator.models.http import (  # noqa: PLC0415 - httpx2 takes a third of a second to import
        AnthropicModel,
        OpenAIModel,
    )

    known = _known(name, settings, base_url)
    options = ModelOptions(
        base_url=base_url,
        api_key=key or None,
        temperature=settings.temperature if temperature is None else temperature,
        prices=known.prices,
        window=known.window,
        vision=settings.vision,
        parameters=settings.parameters,
        headers=settings.headers,
        mode=settings.mode or ("json" if settings.weak else "tools"),
        weak=settings.weak,
    )
    kind = AnthropicModel if settings.wire == "anthropic" else OpenAIModel
    return kind(name, options=options, provider=settings.provider, key_name=key_name or "api_key_env")


def _known(name: str, settings: ModelSettings, base_url: str) -> Listed:
    """What the configuration says, else the public list; a server on this machine is in no list."""
    if (said := settings.prices) is not None:
        configured = Prices(**dict(said))
        return Listed(lambda: configured)
    return Listed() if urlsplit(base_url).hostname in LOOPBACK else look_up(name, base_url)


def _default_url(provider: str, where: str, environ: Mapping[str, str]) -> str:
    if provider == "openai":
        return environ.get("OPENAI_BASE_URL", "").strip() or OPENAI_URL
    if provider == "anthropic":
        return environ.get("ANTHROPIC_BASE_URL", "").strip() or ANTHROPIC_URL
    if provider == "ollama":
        return _ollama_url(environ.get("OLLAMA_HOST", "").strip())
    raise ConfigurationError(f"{where}: provider {provider!r} has no address of its own; set `base_url`.")


def _default_key(settings: ModelSettings, base_url: str) -> str | None:
    """A vendor's key goes to that vendor, and to the server that the environment names beside it; to no other."""
    name, host = _KEYS.get(settings.provider, (None, None))
    environments = settings.base_url is None
    return name if environments or urlsplit(base_url).hostname == host else None


def _ollama_url(host: str) -> str:
    """Ollama's own forms: `host`, `host:port`, `:port`, a URL; 0.0.0.0 is where it listens, not where it is."""
    if not host:
        return f"http://127.0.0.1:{OLLAMA_PORT}/v1"
    url = urlsplit(host if "://" in host else f"http://{host}")
    name = url.hostname or "127.0.0.1"
    name = "127.0.0.1" if name in ("0.0.0.0", "::") else f"[{name}]" if ":" in name else name
    port = url.port or (443 if url.scheme == "https" else 80 if "://" in host else OLLAMA_PORT)
    path = url.path.rstrip("/")
    return f"{url.scheme}://{name}:{port}{path if path.endswith('/v1') else path + '/v1'}"
