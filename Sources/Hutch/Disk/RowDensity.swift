/// The density of the rows along their ids, by which the evictor takes an even sample of the rows.
/// A random id does not give one. Ids only grow, and few rows have old ids: where 10,000 rows are
/// left of a million that were written, nearly every random id leads to one of the few oldest rows.
///
/// The ids from the first row to the last are divided into up to 256 parts of one width. A read of
/// a run of rows shows how many rows there are to an id where the run began. The part in which it
/// began keeps the mean of that density and the one that it knew, or the new density alone if the
/// two are far apart. A part in which no run has begun counts as full, as the newest part is. The
/// densities are estimates: no write updates them, so no other process can make them wrong for
/// good.
struct RowDensity: ~Copyable {
  static let parts = 256
  /// The density of a part in which each id has a row. A density is a number of rows to 65,536 ids.
  private static let full: Int64 = 1 << 16

  private var densities = GrowingArray<Int64>()
  /// The number of ids in a part, a power of two. A part begins at a multiple of it.
  private var width: Int64 = 1
  /// The number of the part whose density is the first one of `densities`.
  private var firstPart: Int64 = 0
  private var first: Int64 = 0
  private var last: Int64 = 0

  init() {}

  /// Divides the ids anew: the rows have ids above `first`, up to `last`.
  @inline(never)
  mutating func cover(from first: Int64, to last: Int64) {
    let last = max(last, first + 1)
    self.first = first
    self.last = last
    var width = self.width
    while last / width - first / width >= Int64(RowDensity.parts) { width *= 2 }
    while width > 1 && last / width - first / width < Int64(RowDensity.parts) / 4 { width /= 2 }
    var next = GrowingArray<Int64>()
    for part in first / width...last / width {
      guard (try? next.append(max(1, known(part, width)))) != nil else { return }
    }
    densities = next
    self.width = width
    firstPart = first / width
  }

  /// The density of a part of another width. A part that several become has their mean.
  private func known(_ part: Int64, _ width: Int64) -> Int64 {
    if width <= self.width { return density(part / (self.width / width)) }
    let count = width / self.width
    guard !densities.isEmpty, count <= Int64(RowDensity.parts) else { return RowDensity.full }
    var sum: Int64 = 0
    for old in part * count..<(part + 1) * count { sum += density(old) }
    return sum / count
  }

  private func density(_ part: Int64) -> Int64 {
    let index = part - firstPart
    return index >= 0 && index < densities.count ? densities[Int(index)] : RowDensity.full
  }

  /// An id behind which a run is to begin. `random` returns a number from 0 up to its argument,
  /// which is excluded. If `evenly` returns true, all ids are equally likely, whatever the
  /// densities are, so that runs begin in every part now and then.
  func place(_ random: (Int64) -> Int64, evenly: () -> Bool) -> Int64 {
    var sum: Int64 = 0
    for density in densities.elements { sum += density }
    guard sum > 0, !evenly() else { return first + random(last - first) }
    var rest = random(sum)
    var part = 0
    while part + 1 < densities.count && rest >= densities[part] {
      rest -= densities[part]
      part += 1
    }
    let start = (firstPart + Int64(part)) * width + random(width)
    return min(max(start, first), last - 1)
  }

  /// Learns from a run: this many rows were read behind `start`, the last one with the id `end`.
  mutating func note(_ rows: Int64, after start: Int64, upTo end: Int64) {
    let index = start / width - firstPart
    guard index >= 0, index < densities.count, end > start else { return }
    let seen = min(RowDensity.full, rows * RowDensity.full / (end - start))
    let known = densities[Int(index)]
    // A density that is far off is out of date, or was a guess: it does not count in the mean.
    let isNews = seen / 4 > known || known / 4 > seen
    densities[Int(index)] = max(1, isNews ? seen : (known + seen) / 2)
  }
}
