/// The next keys of a walk. They lie in one growing array, each behind its size in two bytes.
final class KeyPage {
  private var bytes = GrowingArray<UInt8>()
  /// The page before, whose memory the next one gets.
  private var former = GrowingArray<UInt8>()
  /// The offset of the key that comes next.
  private var position = 0
  /// The offset of the key that the walk is at; nil before the first step.
  private var last: Int?
  /// The failure to append a key.
  private var failure: Failure?

  private static func key(_ bytes: borrowing GrowingArray<UInt8>, at offset: Int) -> Bytes {
    let start = UnsafeRawPointer(bytes.elements.baseAddress.unsafelyUnwrapped) + offset
    return Bytes(start: start + 2, count: Int(start.loadUnaligned(as: UInt16.self)))
  }

  /// Valid until the page is refilled again.
  var current: Bytes? { last.map { KeyPage.key(bytes, at: $0) } }

  func step() -> Bytes? {
    guard position < bytes.count else { return nil }
    let found = KeyPage.key(bytes, at: position)
    last = position
    position += 2 + found.count
    return found
  }

  /// Empties the page: it is then as a new one.
  func reset() {
    bytes.removeAll()
    position = 0
    last = nil
  }

  /// Fills the page with other keys. `fetch` gets the key that the walk is at (nil before the first
  /// step) and a function that appends a key. This function returns what `fetch` returns. The key
  /// that the walk is at becomes the page's first one, and is the only one if this fails.
  func refill(
    _ fetch: (Bytes?, (Bytes) -> Void) throws(Failure) -> Int
  ) throws(Failure) -> Int {
    // It stays in the former page, which does not move while `fetch` appends to this one.
    let from = current
    former.removeAll()
    if let from {
      try KeyPage.append(from, to: &former)
      last = 0
    }
    swap(&bytes, &former)
    position = bytes.count
    failure = nil
    do throws(Failure) {
      let passed = try fetch(from) { key in
        if failure != nil { return }
        do throws(Failure) { try KeyPage.append(key, to: &bytes) } catch { failure = error }
      }
      if let failure { throw failure }
      return passed
    } catch {
      bytes.truncate(to: position)
      throw error
    }
  }

  /// Fails with nothing changed.
  private static func append(
    _ key: Bytes, to bytes: inout GrowingArray<UInt8>
  ) throws(Failure) {
    let before = bytes.count
    do throws(Failure) {
      try bytes.append(UInt8(truncatingIfNeeded: key.count))
      try bytes.append(UInt8(truncatingIfNeeded: key.count >> 8))
      try bytes.append(contentsOf: key)
    } catch {
      bytes.truncate(to: before)
      throw error
    }
  }
}
