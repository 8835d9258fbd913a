/// Keys, each with a number, in one growing piece of memory.
struct KeyList: ~Copyable {
  private var bytes = GrowingArray<UInt8>()

  init() {}

  var isEmpty: Bool { bytes.isEmpty }

  /// Valid until the list changes.
  var first: Bytes? {
    let all = Bytes(bytes.elements)
    guard all.count > 0 else { return nil }
    let size = all.loadUnaligned(fromByteOffset: 8, as: Int.self)
    return Bytes(rebasing: all[16..<16 + size])
  }

  @inline(never)
  mutating func append(_ key: Bytes, _ number: Int64) throws(Failure) {
    let length = bytes.count
    do throws(Failure) {
      try withUnsafeBytes(of: (number, key.count)) { (raw) throws(Failure) in
        try bytes.append(contentsOf: raw)
      }
      try bytes.append(contentsOf: key)
    } catch {
      // No number stays without its key.
      bytes.truncate(to: length)
      throw error
    }
  }

  /// The keys are valid during the call, which must not change the list.
  @inline(never)
  func forEach(_ body: (Bytes, Int64) -> Void) {
    let all = Bytes(bytes.elements)
    var at = 0
    while at < all.count {
      let number = all.loadUnaligned(fromByteOffset: at, as: Int64.self)
      let size = all.loadUnaligned(fromByteOffset: at + 8, as: Int.self)
      body(Bytes(rebasing: all[at + 16..<at + 16 + size]), number)
      at += 16 + size
    }
  }

  mutating func removeAll() { bytes.removeAll() }
}
