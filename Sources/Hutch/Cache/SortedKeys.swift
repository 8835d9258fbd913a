import CSystem

/// The first few of many keys, in the order of their bytes and each once: the next page of a walk
/// that finds its keys in no order, and some of them twice.
///
/// New keys are collected behind those that are in order already. When as many have come as there
/// is room for, the two are merged, and what lies behind the last key that there is room for is
/// left out. Memory is therefore bounded by `room` and `mostBytes`, whatever is offered.
///
/// A hash table says whether a key is among them, once a key has come out of order: a key that
/// comes behind all others is none of them, and a store's keys come so.
struct SortedKeys: ~Copyable {
  /// Not private: an unoptimised test destroys a page itself, and Swift 6.3 fails to compile such a
  /// use of a private type.
  struct Item: BitwiseCopyable {
    /// The first eight bytes of the key, zeroes behind a shorter one: compared first.
    let prefix: UInt64
    /// In `bytes`, which has at most twice `mostBytes`, and a key.
    let offset: UInt32
    let size: UInt32
  }

  private let hash: KeyedHash
  private var bytes = GrowingArray<UInt8>()
  private var items = GrowingArray<Item>()
  /// How many of the items, from the first one on, are in order.
  private var sorted = 0
  /// Each place of the hash table has the number of an item, from 1, below the upper half of its
  /// key's hash; 0: none. A power of two of places, at least twice as many as there are items; a
  /// key is at the place of its hash or behind it, before the next empty one.
  private var places = GrowingArray<UInt64>()
  /// How many of the items, from the first one on, the hash table has.
  private var entered = 0
  /// Keys behind the last one were left out.
  private(set) var isCut = false
  private var room = 0

  /// All keys together; a single one may be larger.
  private static let mostBytes = 4 << 20

  init(_ hash: KeyedHash) { self.hash = hash }

  /// Valid once `order` has been called after the last `insert`.
  var count: Int { items.count }

  /// Valid until the next change.
  subscript(_ index: Int) -> Bytes { key(items[index]) }

  /// Begins anew, with room for so many.
  mutating func begin(room: Int) {
    bytes.removeAll()
    items.removeAll()
    places.removeAll()
    entered = 0
    sorted = 0
    isCut = false
    self.room = room
  }

  @inline(__always)
  private func key(_ item: Item) -> Bytes {
    Bytes(
      start: bytes.elements.baseAddress.unsafelyUnwrapped + Int(item.offset),
      count: Int(item.size))
  }

  @inline(__always)
  private static func prefix(_ key: Bytes) -> UInt64 {
    key.count >= 8
      ? UInt64(bigEndian: key.baseAddress.unsafelyUnwrapped.loadUnaligned(as: UInt64.self))
      : shortPrefix(key)
  }

  /// Of 1 to 7 bytes: the first ones and the last ones, which overlap, each in its place.
  @inline(never)
  private static func shortPrefix(_ key: Bytes) -> UInt64 {
    guard let start = key.baseAddress, key.count > 0 else { return 0 }
    let empty = UInt64(64 &- 8 &* key.count)
    if key.count >= 4 {
      let first = UInt32(bigEndian: start.loadUnaligned(as: UInt32.self))
      let last = UInt32(bigEndian: (start + (key.count &- 4)).loadUnaligned(as: UInt32.self))
      return UInt64(first) &<< 32 | UInt64(last) &<< empty
    }
    let middle = key.count &>> 1
    return UInt64(key[0]) &<< 56 | UInt64(key[middle]) &<< UInt64(56 &- 8 &* middle)
      | UInt64(key[key.count &- 1]) &<< empty
  }

  /// Below 0: `item` comes before the key; 0: it is the same key.
  @inline(never)
  private func order(_ item: Item, _ key: Bytes, _ prefix: UInt64) -> Int {
    if item.prefix != prefix { return item.prefix < prefix ? -1 : 1 }
    let own = self.key(item)
    let common = min(own.count, key.count)
    let order = Int(
      memcmp(
        own.baseAddress.unsafelyUnwrapped, key.baseAddress.unsafelyUnwrapped, common))
    return order != 0 ? order : own.count &- key.count
  }

  @inline(never)
  private func comes(_ a: Item, before b: Item) -> Bool {
    a.prefix != b.prefix ? a.prefix < b.prefix : order(a, key(b), b.prefix) < 0
  }

  /// Whether the key, and each that comes after it, would be left out.
  func isBehindEnd(_ key: Bytes) -> Bool {
    isCut && order(items[sorted - 1], key, SortedKeys.prefix(key)) < 0
  }

  /// The same, of each key that begins with these eight bytes, or with larger ones.
  func isBehindEnd(_ prefix: UInt64) -> Bool { isCut && items[sorted - 1].prefix < prefix }

  /// Adds a key behind all others, whatever its bytes are. `insert` and `order` are not called for
  /// such a page.
  mutating func append(_ key: Bytes) throws(Failure) { try hold(key, 0) }

  /// Adds a key of 1 byte or more, if there is room for it and it is not there.
  mutating func insert(_ key: Bytes) throws(Failure) {
    let prefix = SortedKeys.prefix(key)
    let isNext = sorted == 0 || order(items[sorted &- 1], key, prefix) < 0
    if isNext && (isCut || sorted == room) {
      isCut = true
      return
    }
    if isNext && sorted == items.count {
      _ = try append(key, prefix)
      return
    }
    if entered < items.count || 2 * (items.count &+ 1) > places.count { try enterItems() }
    let hash = self.hash.entry(key) >> 32
    let mask = places.count &- 1
    var place = Int(truncatingIfNeeded: hash) & mask
    while places[place] != 0 {
      let number = places[place]
      if number >> 32 == hash {
        let item = items[Int(UInt32(truncatingIfNeeded: number)) &- 1]
        if order(item, key, prefix) == 0 { return }
      }
      place = (place &+ 1) & mask
    }
    try hold(key, prefix)
    places[place] = hash << 32 | UInt64(items.count)
    entered = items.count
    if items.count >= 2 * room || bytes.count >= 2 * SortedKeys.mostBytes { try order() }
  }

  /// Enters all items into the hash table, with room for one more. Those that it has already are
  /// not hashed again.
  @inline(never)
  private mutating func enterItems() throws(Failure) {
    var size = max(256, places.count)
    while size < 2 * (items.count + 1) { size *= 2 }
    if size > places.count {
      var larger = GrowingArray<UInt64>()
      try larger.append(0, size)
      swap(&places, &larger)
      for word in larger.elements where word != 0 { enter(word) }
    }
    while entered < items.count {
      let hash = self.hash.entry(key(items[entered])) >> 32
      entered += 1
      enter(hash << 32 | UInt64(entered))
    }
  }

  /// Enters a word of the hash table, whose key it does not have.
  private func enter(_ word: UInt64) {
    let mask = places.count - 1
    var place = Int(truncatingIfNeeded: word >> 32) & mask
    while places[place] != 0 { place = (place &+ 1) & mask }
    places[place] = word
  }

  /// Puts all in order, each once, and leaves out those for which there is no room.
  mutating func order() throws(Failure) {
    guard sorted < items.count else { return }
    sortNew()
    var merged = SortedKeys(hash)
    merged.begin(room: room)
    merged.isCut = isCut
    var old = 0
    var new = sorted
    while old < sorted || new < items.count {
      let isOld = new == items.count || (old < sorted && comes(items[old], before: items[new]))
      let item = items[isOld ? old : new]
      if isOld { old += 1 } else { new += 1 }
      if try !merged.append(key(item), item.prefix) { break }
    }
    places.removeAll()
    swap(&places, &merged.places)
    swap(&self, &merged)
  }

  /// Adds a key that comes behind all others. False: there is no room for it.
  private mutating func append(_ key: Bytes, _ prefix: UInt64) throws(Failure) -> Bool {
    if sorted == room || (sorted > 0 && bytes.count + key.count > SortedKeys.mostBytes) {
      isCut = true
      return false
    }
    try hold(key, prefix)
    sorted += 1
    return true
  }

  private mutating func hold(_ key: Bytes, _ prefix: UInt64) throws(Failure) {
    let item = Item(prefix: prefix, offset: UInt32(bytes.count), size: UInt32(key.count))
    try bytes.append(contentsOf: key)
    try items.append(item)
  }

  /// Puts the new ones in order among themselves: a heap with the last one at its root.
  private func sortNew() {
    var count = items.count - sorted
    for root in (0..<count / 2).reversed() { sink(root, count) }
    while count > 1 {
      count -= 1
      let last = items[sorted]
      items[sorted] = items[sorted + count]
      items[sorted + count] = last
      sink(0, count)
    }
  }

  /// Lets an item sink among the first `count` new ones.
  @inline(never)
  private func sink(_ start: Int, _ count: Int) {
    var at = start
    let item = items[sorted + at]
    while 2 * at + 1 < count {
      var child = 2 * at + 1
      if child + 1 < count && comes(items[sorted + child], before: items[sorted + child + 1]) {
        child += 1
      }
      guard comes(item, before: items[sorted + child]) else { break }
      items[sorted + at] = items[sorted + child]
      at = child
    }
    items[sorted + at] = item
  }
}
