"""The settings that diskcache's Django tests run with; their sdist leaves them out."""

import os
import tempfile

SECRET_KEY = "of tests alone"
USE_TZ = False
INSTALLED_APPS = ["tests"]
MIDDLEWARE: list = []
ROOT_URLCONF = "tests.urls"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
CACHES = {
    "default": {
        "BACKEND": "diskcache.DjangoCache",
        "LOCATION": os.path.join(tempfile.mkdtemp(prefix="diskcache-django-"), "default"),
    }
}
