"""Log compaction: of every key, the last record is kept.

Theory of operation. The log is cut in two by its *first dirty offset*: what lies before it was cleaned already, what
lies after it was written since. One cleaning

1. reads the dirty part and notes the last offset of each key (key_map), as far as memory allows;
2. writes all segments up to there anew, without the records that the map knows a later one for (rewrite); small
   neighbours become one segment (plan);
3. puts each new segment in the place of the old ones, by names that a crash at any moment leaves in order (swap);
4. moves the first dirty offset to where the map ended.

Offsets never change. A batch keeps its base and last offset whatever it loses; one that loses everything goes, unless
it is the last of its segment (so that segments go on ending where the next begins) or the last of a producer that is
still known (so that its sequence numbers stay known); then its bare header stays.

Left alone are the active segment and everything that is not committed or not decided (open transactions). The log is
flushed before it is cleaned: a record is removed only because of one that nothing can take back.

Two halves. What reads and writes records costs time for every record, and runs in a process of its own (worker,
cleaning, rewrite, payload), so that the event loop is not held up; docs/adr/0005 has the measurements. What chooses a
log and swaps segments runs in a thread of the broker (manager, cleaner, swap) and costs next to nothing.
"""
