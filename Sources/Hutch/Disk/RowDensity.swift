/// How densely the rows lie along their ids, so that a sample can be taken evenly of the rows,
/// and not of the ids: these only grow, and of the old ones few are left. With as many rows as
/// ids a random id would do; of 10,000 rows out of a million that were ever written nearly each
/// would lead to one of the oldest few.
///
/// The ids from the first row to the last are divided into up to 256 parts of one width. Each
/// run of rows that is read tells how many there are to an id where it began, which the part
/// remembers: the mean of what it knew and what was seen, or only the latter if that is far off. A
/// part that has never been looked at counts as full: so are new ones. Nothing is counted, so
/// nothing can get out of step, whichever process writes.
struct RowDensity: ~Copyable {
  static let parts = 256
  /// Rows to 65,536 ids.
  private static let full: Int64 = 1 << 16

  private var densities = GrowingArray<Int64>()
  /// Ids in a part: a power of two. A part begins at a multiple of it.
  private var width: Int64 = 1
  /// The part that the first of `densities` is for.
  private var firstPart: Int64 = 0
  private var first: Int64 = 0
  private var last: Int64 = 0

  init() {}

  /// The rows have ids above `first`, up to `last`.
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

  /// The density of a part of another width: of parts that become one their mean.
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

  /// An id behind which a run is to begin. `random`: a number below another one. `evenly`: by the
  /// ids, whatever is known, so that all parts are looked at now and then.
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

  /// A run of so many rows began behind `start` and came as far as `end`.
  mutating func note(_ rows: Int64, after start: Int64, upTo end: Int64) {
    let index = start / width - firstPart
    guard index >= 0, index < densities.count, end > start else { return }
    let seen = min(RowDensity.full, rows * RowDensity.full / (end - start))
    let known = densities[Int(index)]
    // The known density may be of another time, or a guess: then one look is worth more.
    let isNews = seen / 4 > known || known / 4 > seen
    densities[Int(index)] = max(1, isNews ? seen : (known + seen) / 2)
  }
}
