"""Records and offsets: Produce, Fetch, ListOffsets, DeleteRecords; retention and compaction."""
