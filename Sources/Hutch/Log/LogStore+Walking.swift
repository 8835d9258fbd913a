import CSystem
import Synchronization

// Walks: in the order of the keys' hashes, which no write changes. An entry that stays is met
// exactly once, whatever comes, goes or moves meanwhile.

/// How far a walk has come: the least order that it has not met.
struct LogPlace {
  var next: UInt64 = 0

  /// A hash's place in the order. The bits by which pages are told apart come first, the
  /// lowest one first of all: so the keys of a page are neighbours, and stay so when it divides.
  @inline(__always)
  static func order(_ hash: UInt64) -> UInt64 {
    reversed(UInt64(LogStore.spread(hash))) << 32 | hash >> 32
  }

  /// A hash that leads to the page in which the walk goes on.
  var hash: UInt64 { LogPlace.reversed(next >> 32) << 12 }

  static let bits = IndexAt.highestTop + 32
  var isAtEnd: Bool { next >> UInt64(LogPlace.bits) != 0 }

  /// Behind the keys of a page of this level.
  func end(ofLevel level: Int) -> UInt64 {
    let shift = UInt64(LogPlace.bits - level)
    return (next >> shift + 1) << shift
  }

  /// The bits that tell pages apart, in the reverse order.
  @inline(never)
  private static func reversed(_ bits: UInt64) -> UInt64 {
    var left = bits
    var reversed: UInt64 = 0
    for _ in 0..<IndexAt.highestTop {
      reversed = reversed << 1 | left & 1
      left >>= 1
    }
    return reversed
  }
}

/// The entries that a walk has found in one page, as copies: no lock is held while they are used.
struct WalkPage: ~Copyable {
  struct Entry {
    let order: UInt64
    let record: Record
    let key: Int
    let keySize: Int
    /// Where the entry was, and how often it had been read, up to 2.
    let address: LogAddress
    let uses: UInt64
    /// The bytes of the disk that it occupies.
    let charge: Int64
    /// The number in the name of its content file; 0: it has none.
    let file: UInt64
  }
  var entries = GrowingArray<Entry>()
  var keys = GrowingArray<UInt8>()

  mutating func removeAll() {
    entries.removeAll()
    keys.removeAll()
  }

  func key(of entry: Entry) -> Bytes {
    Bytes(rebasing: Bytes(keys.elements)[entry.key..<entry.key + entry.keySize])
  }
}

extension LogStore {
  /// Finds the entries of the next page, whatever their age, and goes on behind them. False: it
  /// was the last one, and there are none. The lock is not held.
  func step(_ place: inout LogPlace, into found: inout WalkPage) throws(Failure) -> Bool {
    found.removeAll()
    while !place.isAtEnd {
      guard let page = page(for: place.hash) else {
        let hash = place.hash
        try locked { () throws(Failure) in try mend(for: hash) }
        continue
      }
      try collect(page, from: place, into: &found)
      if words.load(PageWord.offset(page.number)) == page.word.bits {
        place.next = place.end(ofLevel: page.word.level)
        return true
      }
      found.removeAll()
    }
    place.next = 1 << UInt64(LogPlace.bits)
    return false
  }

  private func collect(
    _ page: SlotPage, from place: LogPlace, into found: inout WalkPage
  ) throws(Failure) {
    prefetchEntries(of: page)
    for i in 0..<LogPages.slots {
      while true {
        let word = SlotWord(SharedWords.load(page.base + i * 8))
        guard word.names, let seat = seat(of: word.address) else { break }
        let (entries, keys) = (found.entries.count, found.keys.count)
        if let entry = entry(seat, word.address), entry.keySize > 0, !entry.isRecord {
          try found.keys.append(contentsOf: entry.key)
          let copied = Bytes(rebasing: Bytes(found.keys.elements)[keys...])
          let order = LogPlace.order(hash.entry(copied))
          if order >= place.next && order < place.end(ofLevel: page.word.level) {
            try found.entries.append(
              WalkPage.Entry(
                order: order, record: entry.record, key: keys, keySize: entry.keySize,
                address: word.address, uses: word.uses,
                charge: Int64(clamping: entry.charge), file: entry.fileNumber))
          } else {
            found.keys.truncate(to: keys)
          }
        }
        if isStill(seat, word.address) { break }
        // The copies may be any bytes. The slot names the entry's new place, if it has one.
        found.entries.truncate(to: entries)
        found.keys.truncate(to: keys)
      }
    }
  }

  /// Takes away entries that a walk has found, those that are where they were and that `isWanted`
  /// still wants, as they are now. With the lock held.
  func lose(
    _ addresses: borrowing GrowingArray<LogAddress>, _ range: Range<Int>, at moment: Moment,
    if isWanted: (Int, Record) -> Bool
  ) -> UInt64 {
    var lost: UInt64 = 0
    let ages = ages
    for i in range {
      let address = addresses[i]
      guard let seat = seat(of: address), let entry = entry(seat, address), entry.keySize > 0,
        let (slot, page) = slot(of: entry, hash.entry(entry.key))
      else { continue }
      let record = entry.record
      guard isWanted(i, record) else { continue }
      let hasExpired = record.isExpired(at: moment.time, under: ages)
      lose(slot, page, entry, hasExpired ? .expired : .evicted)
      lost += 1
    }
    return lost
  }
}
