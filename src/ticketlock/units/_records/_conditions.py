"""Every condition of the protocol of units, under a name that states the fact that it requires.

``#mark`` and ``#version`` are the attributes that units add to a user's item, ``#key`` is its partition key.
"""

ANYHOW = ""
"""Whatever is there: repeated, late, or after another one, the write does no harm."""

UNMARKED = "attribute_not_exists(#mark)"
AT_THE_VERSION_I_SAW = "#version = :seen"
NEVER_WRITTEN_BY_A_UNIT = "attribute_not_exists(#version) AND attribute_exists(#key)"
ABSENT = "attribute_not_exists(#key)"
OF_UNITS_ALONE = "attribute_not_exists(#version) OR (attribute_type(#version, :text) AND size(#version) = :length)"
"""The version has the form of a unit's. It is stated only where the item was not read."""
MARKED_BY_THE_UNIT = "#mark.#unit = :unit"
ONLY_HOLDS_A_PLACE = "#mark.#kind = :insert AND attribute_not_exists(#version)"

# In the units table.
NO_SUCH_ROW = "attribute_not_exists(#unit)"
NO_ROW_THAT_STAYS_AS_LONG = "attribute_not_exists(#unit) OR (#ttl < :until AND #format = :format)"
NOT_WRITTEN_SINCE_THIS_TRY = "attribute_not_exists(#unit) OR #try < :try"
KNOWN_FORMAT = "#format = :format"
HEAD_IS_PENDING = "#state = :pending"
REV_AS_I_SAW = "#rev = :rev"
LEASE_ENDS_BEFORE = "#lease < :lease"
LEASE_AS_I_SAW = "#lease = :seen_lease"
OWNER_AS_ASKED = "#owner = :owner"
ENDED_AS_I_SAW = "finalMs = :seen_final"
"""It has ended, and has not been made again since, after time to live had deleted it."""
HEAD_IS_CLOSED = "attribute_exists(closed)"
RECEIPT_GIVEN_UP_AS_I_SAW = "attribute_not_exists(#unit) OR (#state = :rolled_back AND #by = :seen_by)"
