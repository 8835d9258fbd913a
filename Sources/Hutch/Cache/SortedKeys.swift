import CSystem

/// The first few of many keys, in the order of their bytes and each once: the next page of a walk
/// that finds its keys in no order, and some of them twice.
///
/// New keys are collected behind those that are in order already. When as many have come as there
/// is room for, the two are merged, and what lies behind the last key that there is room for is
/// left out. Memory is therefore bounded by `room` and `mostBytes`, whatever is offered.
///
/// A hash table says whether a key is among them: most keys are offered twice, once by each tier.
struct SortedKeys: ~Copyable {
  private struct Item: BitwiseCopyable {
    /// The first eight bytes of the key, zeroes behind a shorter one: compared first.
    let prefix: UInt64
    /// In `bytes`, where the key lies behind its size. (`bytes` has at most twice `mostBytes`, and
    /// a key.)
    let offset: UInt32
    /// The upper half of the key's hash.
    let hash: UInt32
  }

  private var bytes = GrowingArray<UInt8>()
  private var items = GrowingArray<Item>()
  /// Of each place of the hash table the number of an item, from 1; 0: none. A power of two of
  /// places, at least twice as many as there are items; a key is at the place of its hash or behind
  /// it, before the next empty one.
  private var places = GrowingArray<UInt32>()
  /// How many of the items, from the first one on, are in order.
  private var sorted = 0
  /// Keys behind the last one were left out.
  private(set) var isCut = false
  private var room = 0

  /// All keys together; a single one may be larger.
  private static let mostBytes = 4 << 20

  init() {}

  /// Valid once `order` has been called after the last `insert`.
  var count: Int { items.count }

  /// Valid until the next change.
  subscript(_ index: Int) -> Bytes { key(items[index]) }

  /// Begins anew, with room for so many.
  mutating func begin(room: Int) {
    bytes.removeAll()
    items.removeAll()
    places.removeAll()
    sorted = 0
    isCut = false
    self.room = room
  }

  private func key(_ item: Item) -> Bytes {
    let all = Bytes(bytes.elements)
    let offset = Int(item.offset)
    let size = Int(all.loadUnaligned(fromByteOffset: offset, as: UInt16.self))
    return Bytes(rebasing: all[offset + 2..<offset + 2 + size])
  }

  private static func prefix(_ key: Bytes) -> UInt64 {
    if key.count >= 8 { return UInt64(bigEndian: key.loadUnaligned(as: UInt64.self)) }
    var prefix: UInt64 = 0
    for (index, byte) in key.enumerated() { prefix |= UInt64(byte) << UInt64(56 - 8 * index) }
    return prefix
  }

  /// Below 0: `item` comes before the key; 0: it is the same key.
  private func order(_ item: Item, _ key: Bytes, _ prefix: UInt64) -> Int {
    if item.prefix != prefix { return item.prefix < prefix ? -1 : 1 }
    let own = self.key(item)
    let common = min(own.count, key.count)
    let order = Int(memcmp(own.baseAddress!, key.baseAddress!, common))
    return order != 0 ? order : own.count - key.count
  }

  private func comes(_ a: Item, before b: Item) -> Bool {
    a.prefix != b.prefix ? a.prefix < b.prefix : order(a, key(b), b.prefix) < 0
  }

  /// Whether the key, and each that comes after it, would be left out.
  func isBehindEnd(_ key: Bytes) -> Bool {
    isCut && order(items[sorted - 1], key, SortedKeys.prefix(key)) < 0
  }

  /// Adds a key of 1 to 65,535 bytes, if there is room for it and it is not there. `hash`: of the
  /// key, with secrets.
  mutating func insert(_ key: Bytes, _ hash: UInt64) throws(Failure) {
    let prefix = SortedKeys.prefix(key)
    // A store's keys come in their order.
    let isNext = sorted > 0 && order(items[sorted - 1], key, prefix) < 0
    if isNext && (isCut || sorted == room) {
      isCut = true
      return
    }
    let hash = UInt32(truncatingIfNeeded: hash >> 32)
    if places.count < 2 * (items.count + 1) { try growPlaces() }
    let place = place(of: key, prefix, hash)
    if places[place] != 0 { return }
    try hold(key, prefix, hash)
    places[place] = UInt32(items.count)
    if sorted == items.count - 1 && (isNext || sorted == 0) { sorted += 1 }
    if items.count >= 2 * room || bytes.count >= 2 * SortedKeys.mostBytes { try order() }
  }

  /// Where the key is in the hash table, or where it is to be entered.
  private func place(of key: Bytes, _ prefix: UInt64, _ hash: UInt32) -> Int {
    let mask = places.count - 1
    var place = Int(hash) & mask
    while places[place] != 0 {
      let item = items[Int(places[place]) - 1]
      if item.hash == hash && order(item, key, prefix) == 0 { break }
      place = (place + 1) & mask
    }
    return place
  }

  /// Makes a hash table of twice the size, of all items.
  private mutating func growPlaces() throws(Failure) {
    try makePlaces(max(256, places.count * 2))
  }

  private mutating func makePlaces(_ count: Int) throws(Failure) {
    places.removeAll()
    try places.append(0, count)
    for index in 0..<items.count {
      var place = Int(items[index].hash) & (count - 1)
      while places[place] != 0 { place = (place + 1) & (count - 1) }
      places[place] = UInt32(index + 1)
    }
  }

  /// Puts all in order, each once, and leaves out those for which there is no room.
  mutating func order() throws(Failure) {
    guard sorted < items.count else { return }
    sortNew()
    var merged = SortedKeys()
    merged.begin(room: room)
    merged.isCut = isCut
    var old = 0
    var new = sorted
    while old < sorted || new < items.count {
      let isOld = new == items.count || (old < sorted && comes(items[old], before: items[new]))
      let item = items[isOld ? old : new]
      if isOld { old += 1 } else { new += 1 }
      if try !merged.append(key(item), item) { break }
    }
    swap(&places, &merged.places)
    swap(&self, &merged)
    if places.count > 0 { try makePlaces(places.count) }
  }

  /// Adds a key that comes behind the last one. False: there is no room for it.
  private mutating func append(_ key: Bytes, _ item: Item) throws(Failure) -> Bool {
    if sorted == room || (sorted > 0 && bytes.count + key.count > SortedKeys.mostBytes) {
      isCut = true
      return false
    }
    try hold(key, item.prefix, item.hash)
    sorted += 1
    return true
  }

  private mutating func hold(
    _ key: Bytes, _ prefix: UInt64, _ hash: UInt32
  ) throws(Failure) {
    let item = Item(prefix: prefix, offset: UInt32(bytes.count), hash: hash)
    try withUnsafeBytes(of: UInt16(key.count)) { (size) throws(Failure) in
      try bytes.append(contentsOf: size)
    }
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
