/// The versions of the entries that a walk has met. An open hash table: a version is at the place
/// of its hash or behind it, before the next empty one.
struct VersionSet: ~Copyable {
  /// A power of two of places; 0: empty. No version is 0.
  private var places = GrowingArray<UInt64>()
  private var count = 0

  /// The place of a version, or the empty place at which it would be.
  private func place(of version: UInt64) -> Int {
    let mask = places.count - 1
    // Versions are numbers in succession (Fibonacci hashing, Knuth vol. 3, 6.4).
    var place = Int(truncatingIfNeeded: (version &* 0x9E37_79B9_7F4A_7C15) >> 32) & mask
    while places[place] != 0 && places[place] != version { place = (place + 1) & mask }
    return place
  }

  func contains(_ version: UInt64) -> Bool {
    count > 0 && places[place(of: version)] == version
  }

  /// False: the version is there.
  mutating func insert(_ version: UInt64) throws(Failure) -> Bool {
    if 4 * count >= 3 * places.count {
      var larger = VersionSet()
      try larger.places.append(0, max(256, 2 * places.count))
      for old in places.elements where old != 0 { larger.places[larger.place(of: old)] = old }
      larger.count = count
      swap(&self, &larger)
    }
    let place = place(of: version)
    if places[place] == version { return false }
    places[place] = version
    count += 1
    return true
  }
}
