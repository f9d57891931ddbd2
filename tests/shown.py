"""What a part of the charm says, as `juju status` shows it before it is shortened."""

import ops

_KINDS = {
    kind.name: kind
    for kind in (ops.BlockedStatus, ops.WaitingStatus, ops.MaintenanceStatus, ops.ActiveStatus)
}


def status(message):
    """Return the status of a message."""
    return _KINDS[message.severity.value](message.text)


def statuses(messages):
    """Return the statuses of messages."""
    return [status(each) for each in messages]
