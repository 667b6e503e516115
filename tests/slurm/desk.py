"""What stands where the portal would be, with the jobs of its bookings."""

from tests.agent.desk import Desk as AnyDesk


class Desk(AnyDesk):
    """See tests.agent.desk."""

    def ready(self, name: str) -> int:
        """Waits until the booking is ready; returns its job."""
        self.await_ready(name)
        ids = {each.id for _, each in self.bookings[name]}
        (job,) = {each.job for each in self.portal.reports()[-1].allocations if each.id in ids}
        assert job is not None
        return job
