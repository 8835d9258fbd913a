import CSystem

/// Prefetches what the next evictions will read, while one call evicts many entries in a row. Each
/// eviction would wait for its slot, then for its line of words, then for its block. The lists of
/// the policy say which entries come next, so the waits of several overlap. It changes nothing: a
/// wrong guess costs time only.
///
/// It belongs to one hold of a shard's lock, since it keeps addresses of the table's lines. What it
/// has prefetched serves the next hold too.
struct LookAhead {
  /// Of the default policy's main queue, by cost; the first is that of the list of another policy.
  private var main = InlineArray<4, Next>(repeating: Next())
  /// Of its window, likewise.
  private var window = InlineArray<2, Next>(repeating: Next())

  /// The next entries of one list.
  struct Next {
    /// The line of words of an entry is prefetched so many entries before its turn, and its slot
    /// one entry earlier.
    private static var distance: Int { 7 }
    /// The block, or what a used entry needs, is prefetched so many entries before its turn.
    private static var distanceOfBlock: Int { 3 }

    /// The slots in the upper half, their hashes in the lower.
    private var slots = InlineArray<8, UInt64>(repeating: 0)
    /// The addresses of the lines of words, and in the uppermost 16 bits the tags.
    private var lines = InlineArray<8, UInt64>(repeating: 0)
    /// How many of the entries the policy has reached, for how many the block is prefetched, and
    /// how many there are.
    private var reached = 0
    private var prefetched = 0
    private var count = 0
    /// The slot behind the last of them.
    private var next = Slot.none
    private var last = Slot.none

    /// The policy looks at this slot, the first of its list. It may look at one several times.
    @inline(never)
    @_optimize(speed)
    mutating func advance(
      to first: Slot, _ entries: borrowing Entries, _ prefetch: (UInt32, Word) -> Void
    ) {
      if first == last { return }
      last = first
      if _fastPath(
        reached != count && slots[unchecked: reached & 7] >> 32 == UInt64(first.number))
      {
        reached &+= 1
      } else {
        // The first look, or the list is another one.
        (reached, prefetched, count) = (0, 0, 0)
        next = entries.newer(first)
      }
      while count &- reached < Next.distance && !next.isNone {
        let at = count & 7
        let hash = entries.slab[next].pointee.hash
        slots[unchecked: at] = UInt64(next.number) &<< 32 | UInt64(hash)
        lines[unchecked: at] = entries.table.prefetchLine(UInt64(hash) &<< 32)
        count &+= 1
        next = entries.newer(next)
        if !next.isNone { hutch_prefetch(entries.slab[next]) }
      }
      if prefetched < reached { prefetched = reached }
      while prefetched < count && prefetched &- reached < Next.distanceOfBlock {
        let hash = UInt32(truncatingIfNeeded: slots[unchecked: prefetched & 7])
        Table.visitGuesses(lines[unchecked: prefetched & 7]) { prefetch(hash, $0) }
        prefetched &+= 1
      }
    }
  }
}

extension LookAhead {
  /// Of the main queue.
  @inline(never)
  @_optimize(speed)
  mutating func prefetch(
    after head: Slot, _ sketch: borrowing FrequencySketch, _ entries: borrowing Entries
  ) {
    let link = entries.link(head).pointee
    let list = Int(truncatingIfNeeded: (link.costClass &- link.level) & 3)
    main[unchecked: list].advance(to: head, entries) { hash, word in
      if word.uses == 0 {
        word.prefetchBlock()
      } else {
        sketch.prefetch(entries.position.key(hash & ~1))
      }
    }
  }

  /// Of the window.
  @inline(never)
  @_optimize(speed)
  mutating func prefetch(
    after head: Slot, _ sketch: borrowing FrequencySketch, _ ghosts: borrowing Ghosts,
    _ entries: borrowing Entries
  ) {
    let list = Int(truncatingIfNeeded: entries.link(head).pointee.costClass & 1)
    window[unchecked: list].advance(to: head, entries) { hash, word in
      sketch.prefetch(entries.position.key(hash & ~1))
      if word.uses < 2 {
        ghosts.prefetch(hash & ~1)
        word.prefetchBlock()
      }
    }
  }

  /// Of a list of another policy.
  @inline(never)
  @_optimize(speed)
  mutating func prefetch(after head: Slot, _ entries: borrowing Entries) {
    main[unchecked: 0].advance(to: head, entries) { _, word in word.prefetchBlock() }
  }
}

extension Entries {
  /// The slot that was pushed after this one.
  @inline(__always)
  func newer(_ slot: Slot) -> Slot {
    slab.counts ? links(slot).pointee.newer : link(slot).pointee.newer
  }
}

extension Word {
  /// Asks for the block's header, and for the heap's before it.
  @inline(__always)
  fileprivate func prefetchBlock() {
    hutch_prefetch(block0)
    hutch_prefetch(block0.map { $0 - HeapSpan.header })
  }
}

extension Table {
  /// Asks for the line of words to which a hash leads. Returns its address, with the tag in the
  /// uppermost 16 bits.
  @inline(__always)
  fileprivate func prefetchLine(_ hash: UInt64) -> UInt64 {
    let (line, tag) = home(hash, directory.unsafelyUnwrapped)
    hutch_prefetch(line)
    return UInt64(UInt(bitPattern: line)) | tag &<< 48
  }

  /// The words of such a line that have the tag. If the line is full the one behind it is asked
  /// for. If there are several words, `find` reads their blocks.
  @inline(__always)
  fileprivate static func visitGuesses(_ home: UInt64, _ body: (Word) -> Void) {
    let line = Line(bitPattern: UInt(home & 0xFFFF_FFFF_FFFF)).unsafelyUnwrapped
    if !hasEnd(line) { hutch_prefetch(line + wordsPerLine) }
    var matches = Matches(line, tag: home &>> 48)
    if matches.isEmpty { return }
    let first = matches.first(of: line).word
    body(first)
    matches.removeFirst()
    if _fastPath(matches.isEmpty) { return }
    hutch_prefetch(first.block0)
    while !matches.isEmpty {
      hutch_prefetch(matches.first(of: line).word.block0)
      matches.removeFirst()
    }
  }
}
