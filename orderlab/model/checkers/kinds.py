"""Event kinds as plain integers: what compiled loops compare a `kind` column with."""

from orderlab.model.history.events import EventKind

PUBLISH = int(EventKind.PUBLISH)
PUBLISH_ACKNOWLEDGED = int(EventKind.PUBLISH_ACKNOWLEDGED)
DELIVER = int(EventKind.DELIVER)
RECEIVE = int(EventKind.RECEIVE)
RELEASE = int(EventKind.RELEASE)
ACKNOWLEDGE = int(EventKind.ACKNOWLEDGE)
TRIM = int(EventKind.TRIM)
EXPIRE = int(EventKind.EXPIRE)
CLEAR = int(EventKind.CLEAR)
SUBSCRIBE = int(EventKind.SUBSCRIBE)
CONNECT = int(EventKind.CONNECT)
DISCONNECT = int(EventKind.DISCONNECT)
HEAL = int(EventKind.HEAL)
CUT = int(EventKind.CUT)
FAULT = int(EventKind.FAULT)
