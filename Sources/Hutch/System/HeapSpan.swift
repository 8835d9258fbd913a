import CSystem
import Synchronization

/// A span of a region of the heap (Heap.swift): memory in use, or free.
///
/// It begins with a header of 8 bytes, in the place that malloc has for its own, so memory in use
/// is 16-byte aligned. Sizes are in units of 16 bytes, header included.
///
///     0  units     UInt32; the top bit: free; the next one: of a free span that is in no bin
///     4  before    UInt32, the units of the span before this one if that is free, else 0
///     8  next      of a free span of two units or more: its neighbours in its bin
///    16  previous
///    24  from, to  of a large free span: UInt32 each, the pages of the region, `to` excluded,
///                  outside which none of its whole pages is in memory
///    32  older     of a large free span with such pages: its neighbours in the list of them
///    40  newer
///
/// A region ends with a header of 0 units in use. Two free spans are never neighbours.
struct HeapSpan {
  let raw: UnsafeMutableRawPointer

  static let unit = 16
  static let header = 8
  static let page = 4096
  private static let freeBit: UInt32 = 1 << 31
  private static let hiddenBit: UInt32 = 1 << 30
  /// The units of the least free span whose pages are given back to the system.
  static let large = 4 * page / unit

  @inline(__always) init(_ raw: UnsafeMutableRawPointer) { self.raw = raw }

  @inline(__always)
  private func at<T: BitwiseCopyable>(_ offset: Int, _ type: T.Type) -> UnsafeMutablePointer<T> {
    (raw + offset).assumingMemoryBound(to: type)
  }

  @inline(__always) private var word: UInt32 { at(0, UInt32.self).pointee }
  @inline(__always) var isFree: Bool { word & HeapSpan.freeBit != 0 }
  @inline(__always) var units: Int { Int(word & ~(HeapSpan.freeBit | HeapSpan.hiddenBit)) }
  @inline(__always) var before: Int { Int(at(4, UInt32.self).pointee) }

  /// Whether it is free and kept from requests (HeapEvacuation.swift).
  @inline(__always) var isHidden: Bool { word & HeapSpan.hiddenBit != 0 }
  func hide() { at(0, UInt32.self).pointee |= HeapSpan.hiddenBit }

  /// Sets its size and state, of which the span after it has a note.
  @inline(__always)
  func set(_ units: Int, isFree: Bool) {
    let size = UInt32(truncatingIfNeeded: units)
    at(0, UInt32.self).pointee = isFree ? size | HeapSpan.freeBit : size
    after(units).at(4, UInt32.self).pointee = isFree ? size : 0
  }

  @inline(__always)
  var next: UnsafeMutableRawPointer? {
    get { at(8, UnsafeMutableRawPointer?.self).pointee }
    nonmutating set { at(8, UnsafeMutableRawPointer?.self).pointee = newValue }
  }
  @inline(__always)
  var previous: UnsafeMutableRawPointer? {
    get { at(16, UnsafeMutableRawPointer?.self).pointee }
    nonmutating set { at(16, UnsafeMutableRawPointer?.self).pointee = newValue }
  }
  @inline(__always)
  var older: UnsafeMutableRawPointer? {
    get { at(32, UnsafeMutableRawPointer?.self).pointee }
    nonmutating set { at(32, UnsafeMutableRawPointer?.self).pointee = newValue }
  }
  @inline(__always)
  var newer: UnsafeMutableRawPointer? {
    get { at(40, UnsafeMutableRawPointer?.self).pointee }
    nonmutating set { at(40, UnsafeMutableRawPointer?.self).pointee = newValue }
  }

  /// The span so many units further on.
  @inline(__always)
  func after(_ units: Int) -> HeapSpan { HeapSpan(raw + units &* HeapSpan.unit) }

  // MARK: pages

  /// The address of the region, by its alignment.
  @inline(__always)
  var region: UnsafeMutableRawPointer {
    UnsafeMutableRawPointer(bitPattern: UInt(bitPattern: raw) & ~UInt(Heap.regionSize - 1))
      .unsafelyUnwrapped
  }

  @inline(__always)
  private var offset: Int { Int(bitPattern: raw) & (Heap.regionSize - 1) }

  /// The window in which it begins.
  @inline(__always)
  private var window: UnsafeMutablePointer<Atomic<UInt32>> {
    HeapRegion(region).window(offset / HeapRegion.windowSize)
  }

  @inline(__always)
  var isEvacuated: Bool {
    window.pointee.load(ordering: .relaxed) & HeapRegion.evacuated != 0
  }

  /// Of a free span of so many units: those before the evacuated window in which it ends, if it
  /// begins in another one; else all.
  func unitsOutside(_ units: Int) -> Int {
    let last = (offset &+ units &* HeapSpan.unit &- 1) / HeapRegion.windowSize
    let lead = last &* HeapRegion.windowSize &- offset
    let state = HeapRegion(region).window(last).pointee.load(ordering: .relaxed)
    if lead <= 0 || state & HeapRegion.evacuated == 0 { return units }
    return (lead &+ HeapSpan.unit - 1) / HeapSpan.unit
  }

  /// Whether no request gets a free span of so many units while windows are evacuated.
  func isToHide(_ units: Int) -> Bool {
    isEvacuated || units < HeapSpan.large && unitsOutside(units) < units
  }

  /// So many units more of its window are in use. True: the window was evacuated, and is empty; it
  /// is an ordinary one again.
  @inline(__always)
  func use(_ more: Int) -> Bool {
    let used = window.pointee.load(ordering: .relaxed) &+ UInt32(truncatingIfNeeded: more)
    let isEmpty = used == HeapRegion.evacuated
    window.pointee.store(isEmpty ? 0 : used, ordering: .relaxed)
    return isEmpty
  }

  /// The number of the page in which it begins, in the address space.
  @inline(__always) var page: UInt { UInt(bitPattern: raw) / UInt(HeapSpan.page) }

  /// The pages, by number in the region, that a span of so many units touches.
  @inline(__always)
  func touched(_ units: Int) -> HeapPages {
    let end = offset &+ units &* HeapSpan.unit
    return HeapPages(from: offset / HeapSpan.page, to: (end &+ HeapSpan.page - 1) / HeapSpan.page)
  }

  /// The pages that belong to a free span alone, behind what it notes of itself.
  @inline(__always)
  func whole(_ units: Int) -> HeapPages {
    let end = offset &+ units &* HeapSpan.unit
    return HeapPages(
      from: (offset &+ 48 &+ HeapSpan.page - 1) / HeapSpan.page, to: end / HeapSpan.page)
  }

  /// Of a large free span.
  @inline(__always)
  var dirty: HeapPages {
    get {
      HeapPages(from: Int(at(24, UInt32.self).pointee), to: Int(at(28, UInt32.self).pointee))
    }
    nonmutating set {
      at(24, UInt32.self).pointee = UInt32(truncatingIfNeeded: newValue.from)
      at(28, UInt32.self).pointee = UInt32(truncatingIfNeeded: newValue.to)
    }
  }
}

extension HeapSpan {
  /// Of a free span: its pages that may be in memory.
  func pages(_ units: Int) -> HeapPages { units < HeapSpan.large ? touched(units) : dirty }
}

/// Pages that follow each other.
struct HeapPages {
  var from: Int
  /// Excluded.
  var to: Int

  @inline(__always) static var none: HeapPages { HeapPages(from: 0, to: 0) }
  @inline(__always) var count: Int { max(0, to &- from) }
  @inline(__always) var isEmpty: Bool { to <= from }

  /// The part that is within other pages.
  @inline(__always)
  func within(_ other: HeapPages) -> HeapPages {
    HeapPages(from: max(from, other.from), to: min(to, other.to))
  }
}
