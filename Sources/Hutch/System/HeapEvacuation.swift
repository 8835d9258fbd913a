import Synchronization

/// The evacuation of windows: how a heap that is tight (Heap.swift) gives back what is between
/// spans in use.
///
/// After a change of sizes, or when a limit has been lowered, the entries that stay are on most of
/// the pages, and few pages are free as a whole. Then each arena chooses the windows of its regions
/// (`HeapRegion`) with the least in use, as many as have room in the holes of the others. While
/// they are evacuated no request gets a span there: a free span of theirs is hidden, in a list of
/// its own, when a request would get it or when it is freed. One that begins before such a window
/// and ends in it is hidden too if it is small; of a large one, which may be nearly all of a
/// region, requests get what is outside. The memory tiers move the blocks and the parts of their
/// tables that they find there (`Heap.moved`) as they go around their tables. A window with nothing
/// in use is an ordinary one again, and a review gives its pages back.
///
/// A review chooses windows when the heap is tight, and a put that evicts many entries does. The
/// evacuation ends when all of them are empty, or nothing moves any more: what a reader holds does
/// not. Another one follows at once in the first case, and later in the second. A tier that has
/// evicted much begins and ends one by itself (`MemoryTier.tighten`). At the end the hidden spans
/// go into their bins, some at each review, and only then windows are chosen again.
///
/// SMALL TIERS. A small heap has few windows, and the holes of those that are evacuated would be
/// missing. So while there is a small memory tier, reviews choose no windows, and puts move single
/// blocks between holes instead (`looseUnits`). A put that evicts many has windows there too.
///
/// So a garbage collector evacuates regions (Detlefs, Flood, Heller and Printezis, "Garbage-First
/// Garbage Collection", 2004). Here the shards are the roots: what moves is a block that a shard
/// finds in its table, or a part of the table, with the shard's lock. All in this file is under the
/// arena's lock.
extension HeapArena {
  /// So many spans a request hides at most, to find one elsewhere.
  private static let mostHidden = 16
  /// So many hidden spans a review puts into their bins.
  private static let mostPutBack = 256
  /// A review chooses windows of this part of what is in use, such a put of that one.
  static let shareOfReview = 16
  private static let shareOfPut = 4
  /// A window of which so many 16ths are in use is not evacuated.
  private static let mostInUse = 15

  /// The number of evacuated windows.
  @inline(__always)
  var evacuations: Int {
    get { Int(evacuated.pointee.load(ordering: .relaxed)) }
    nonmutating set {
      evacuated.pointee.store(UInt32(truncatingIfNeeded: newValue), ordering: .relaxed)
    }
  }

  @inline(__always)
  private var evacuated: UnsafeMutablePointer<Atomic<UInt32>> {
    (raw + At.evacuations).assumingMemoryBound(to: Atomic<UInt32>.self)
  }

  /// Whether a block has moved out of a window since the last review. Relaxed: what one review does
  /// not see, the next one does.
  var hasMoved: Bool {
    get { moved.pointee.load(ordering: .relaxed) }
    nonmutating set { moved.pointee.store(newValue, ordering: .relaxed) }
  }

  private var moved: UnsafeMutablePointer<Atomic<Bool>> {
    (raw + At.hasMoved).assumingMemoryBound(to: Atomic<Bool>.self)
  }

  /// The windows stay evacuated for so many bytes of requests, or no others are chosen.
  private var toEnd: Int {
    get { (raw + At.toEnd).load(as: Int.self) }
    nonmutating set { (raw + At.toEnd).storeBytes(of: newValue, as: Int.self) }
  }

  private func windows(_ body: (UnsafeMutablePointer<Atomic<UInt32>>) -> Void) {
    for region in regions {
      for index in 0..<HeapRegion.windowCount { body(region.window(index)) }
    }
  }

  /// Chooses the windows, unless there are evacuated ones or hidden spans, and of so many bytes at
  /// most, or of as many as half of the holes have room for.
  private func startEvacuation(most: Int) {
    if evacuations > 0 || hasHidden { return }
    let whole = HeapRegion.unitsOfWindow
    // In quarters of units: three of each unit of a hole, for not all holes serve all sizes. A
    // window needs room for what moves out of it, and its own holes are missing then.
    func need(_ used: Int) -> Int { 4 &* used &+ 3 &* (whole &- used) }
    var room = 0
    var needs = InlineArray<16, Int>(repeating: 0)
    windows {
      let used = Int($0.pointee.load(ordering: .relaxed))
      if used == 0 || used >= whole { return }
      needs[used &* 16 / whole] &+= need(used)
      room &+= 3 &* (whole &- used)
    }
    room = min(room, max(most / HeapSpan.unit &* 4, room / 2))
    var last = 0
    while last < HeapArena.mostInUse, room >= needs[last] {
      room &-= needs[last]
      last += 1
    }
    // Of the windows with that share in use, as many as there is room for.
    var count = 0
    windows {
      let used = $0.pointee.load(ordering: .relaxed)
      let share = Int(used) &* 16 / whole
      if used == 0 || share > last || share == HeapArena.mostInUse { return }
      if share == last {
        room &-= need(Int(used))
        if room < 0 { return }
      }
      $0.pointee.store(used | HeapRegion.evacuated, ordering: .relaxed)
      count &+= 1
    }
    evacuations = count
  }

  /// All windows are ordinary ones again.
  func endEvacuation() {
    if evacuations > 0 {
      windows {
        let used = $0.pointee.load(ordering: .relaxed) & ~HeapRegion.evacuated
        $0.pointee.store(used, ordering: .relaxed)
      }
      evacuations = 0
    }
    var left = HeapArena.mostPutBack
    while left > 0, let span = firstHidden {
      putAgain(span)
      left &-= 1
    }
  }

  /// `insert` and `remove`, where the time of a call counts for nothing.
  @inline(never)
  func insertByCall(_ span: HeapSpan, _ units: Int, dirty: HeapPages) {
    insert(span, units, dirty: dirty)
  }

  @inline(never)
  func removeByCall(_ span: HeapSpan, _ units: Int) { remove(span, units) }

  /// Takes a free span out of its list, and puts it into the one where it belongs now.
  private func putAgain(_ span: HeapSpan) {
    let units = span.units
    let dirty = units < HeapSpan.large ? HeapPages.none : span.dirty
    removeByCall(span, units)
    span.set(units, isFree: true)
    insertByCall(span, units, dirty: dirty)
  }

  /// A free span for a request, as `fit` finds it, but not in an evacuated window, unless `fit`
  /// finds too many there.
  @inline(never)
  func fitElsewhere(_ units: Int) -> HeapSpan? {
    var left = HeapArena.mostHidden
    while let span = fit(units) {
      let all = span.units
      if !span.isToHide(all) {
        let outside = span.unitsOutside(all)
        if outside >= units && outside < all { cut(span, all, to: outside) }
        return span
      }
      if left == 0 { return span }
      putAgain(span)
      left &-= 1
    }
    return nil
  }

  /// Makes the end of a free span, which is in an evacuated window, one of its own. The request
  /// that gets the end of the other part comes between the two.
  private func cut(_ span: HeapSpan, _ units: Int, to outside: Int) {
    let dirty = span.pages(units)
    removeByCall(span, units)
    let end = span.after(outside)
    end.set(units &- outside, isFree: true)
    insertByCall(end, units &- outside, dirty: dirty)
    span.set(outside, isFree: true)
    insertByCall(span, outside, dirty: dirty)
  }

  /// Of a review, for requests of so many bytes since the last one. `share`: see `shareOfReview`;
  /// nil: no windows are chosen.
  func reviewEvacuation(_ bytes: Int, share: Int?) {
    toEnd = max(0, toEnd &- bytes)
    // The walks over the tables are not at their ends.
    if hasMoved {
      hasMoved = false
      toEnd = max(toEnd, used / 128)
    }
    if evacuations == 0 && hasHidden { return endEvacuation() }
    if toEnd > 0 { return }
    if evacuations > 0 {
      // What has stayed in these windows would mostly stay again.
      toEnd = evacuations &* HeapRegion.windowSize
      return endEvacuation()
    }
    guard let share else { return }
    // Meanwhile puts have none of the windows' holes: few at a time.
    startEvacuation(most: max(HeapRegion.windowSize, used / share))
    // By then a block has moved, unless nothing can. Without a window it is when to look again.
    toEnd = used / 32
  }

  /// A put evicts many entries, and is going to close the holes. Called without the lock.
  func openEvacuation() {
    lock.lock()
    reviewEvacuation(0, share: HeapArena.shareOfPut)
    lock.unlock()
  }

  /// Ends the evacuation that is under way, and with `isStart` begins another one, which goes by
  /// what is in use now. Called without the lock. If no thread ends it, a review does.
  func evacuate(_ isStart: Bool) {
    var isOver = false
    while !isOver {
      lock.lock()
      endEvacuation()
      isOver = !hasHidden
      if isOver && isStart {
        startEvacuation(most: .max)
        toEnd = 8 &* used
      }
      lock.unlock()
    }
  }

  /// The units of a span for which there is a better place; nil: it stays. A place is better if the
  /// span lies beside holes and leaves a larger hole than the one that it goes to; or if that one
  /// is farther up, since the lower end of a region is filled last. Not for spans of more than
  /// 64 KB. The place may be another thread's when the caller takes it: then it gets one that is
  /// no better, which is right too. Called without the lock.
  @inline(never)
  func looseUnits(_ given: HeapSpan) -> Int? {
    lock.lock()
    defer { lock.unlock() }
    let units = given.units
    let after = given.after(units)
    let holes = given.before &+ (after.isFree ? after.units : 0)
    guard units <= HeapSpan.large * 4, let place = fit(units),
      (holes > 0 && place.units < holes &+ units)
        || (place.units < HeapSpan.large && place.raw > given.raw + (256 << 10)),
      place.raw != after.raw, place.after(place.units).raw != given.raw
    else { return nil }
    return units
  }

  /// Of an empty window that was evacuated.
  func countEmptied() {
    evacuations &-= 1
    if evacuations == 0 { toEnd = 0 }
  }

  /// The windows' invariant that does not hold, or nil; for tests.
  func violationOfWindows() -> StaticString? {
    var found: StaticString?
    var marks = 0
    for region in regions {
      var span = HeapSpan(region.raw + (HeapRegion.header - HeapSpan.header))
      for index in 0..<HeapRegion.windowCount {
        let end = region.raw + (index + 1) * HeapRegion.windowSize
        var used = 0
        while span.raw < end && span.units > 0 {
          if !span.isFree { used += span.units }
          span = span.after(span.units)
        }
        let word = region.window(index).pointee.load(ordering: .relaxed)
        if word & ~HeapRegion.evacuated != used { found = "a window has other units in use" }
        if word == HeapRegion.evacuated { found = "an empty window is evacuated" }
        if word & HeapRegion.evacuated != 0 { marks += 1 }
      }
    }
    return marks == evacuations ? found : "the number of evacuated windows is wrong"
  }
}
