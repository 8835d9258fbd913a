"""A cache type of Flask-Caching.

    app.config["CACHE_TYPE"] = "hutch.frameworks.flask.HutchCache"
    app.config["CACHE_DIR"] = "/var/tmp/cache"
    app.config["CACHE_OPTIONS"] = {"disk": "2 GB", "memory": "128 MiB"}
    cache = flask_caching.Cache(app)

CACHE_DIR is the directory; without it the cache is in memory. CACHE_DEFAULT_TIMEOUT is as ever, and
CACHE_OPTIONS are those of hutch.Cache. CACHE_THRESHOLD has no meaning: a limit of entries is
memory=hutch.TierLimits(count=...), and disk likewise. CACHE_SERIALIZER has none either; the option
serializer has, see hutch.frameworks. Nor has CACHE_IGNORE_ERRORS: a deletion removes the entry, or
raises hutch.Error.
"""

from __future__ import annotations

from typing import Any

from ._backing import needs

try:
    from flask_caching.backends.base import BaseCache
except ImportError as error:
    raise needs("flask", "Flask-Caching", "flask-caching") from error

from . import cachelib


class HutchCache(cachelib.HutchCache, BaseCache):
    """A backend of Flask-Caching: the cachelib one, made from an application's configuration."""

    @classmethod
    def factory(
        cls, app: Any, config: dict[str, Any], args: list[Any], kwargs: dict[str, Any]
    ) -> HutchCache:
        """What Flask-Caching makes of its configuration."""
        return cls(config.get("CACHE_DIR"), *args, **kwargs)
