"""The table of months whose figures were mailed."""

from django.db import models
from django.db.models import CASCADE

from tenants.models import Tenant


class MailedMonth(models.Model):
    """A month whose figures the leads and admins of an organisation got, so that they get them once."""

    tenant = models.ForeignKey(Tenant, CASCADE)
    month = models.DateField(help_text="Its first day.")
    at = models.DateTimeField(help_text="When its messages were written.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "month"], name="mailed_month_once")]
