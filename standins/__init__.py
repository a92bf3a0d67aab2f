"""Stand-ins for the hardware and the SDKs that a rehearsal lacks. They know nothing of trainjob."""
