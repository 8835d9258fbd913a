"""The model that diskcache's Django tests work with; their sdist leaves it out."""

from django.db import models
from django.utils import timezone


def expensive_calculation():
    """What a test counts: it is to run once, and not when its result comes from the cache."""
    expensive_calculation.num_runs += 1
    return timezone.now()


expensive_calculation.num_runs = 0


class Poll(models.Model):
    question = models.CharField(max_length=200)
    answer = models.CharField(max_length=200)
    pub_date = models.DateTimeField(default=expensive_calculation)

    class Meta:
        app_label = "tests"
