/// The space that the tier takes up, against its limit (`TierLimits.cost`).
///
///     rows + dead + trash + log  <=  limit
///
///     rows    the charges of the entries' rows, content files included (Charge)
///     dead    the charges of rows that a clear has left and maintenance has yet to delete
///     trash   removed content files that are not unlinked yet; other members are taken to have as
///             much each
///     log     SQLite's log, as long as its file is
///
/// Each commit makes it true again, in two steps. Within the transaction rows are removed until
/// rows + dead <= `budget`, which is the limit less the bound of the log, the log's index and the
/// space that the manifest takes up without a row. After the commit `holdLimit` empties the trash
/// down to the space that rows and log leave it, and cuts the log if that is not enough or the log
/// is above `logBound`. A reader that stays may keep the log from being cut: puts are refused above
/// `logCeiling`.
///
/// Files that the host holds count in the cost that `stats` shows and not here: they can neither be
/// removed nor make entries go.
///
/// The free space of the file system has a rule of its own: FreeSpace.
struct SpaceLedger {
  private let limit: UInt64
  private let count: UInt64
  /// So many rows, and so many bytes of them, are not too much, whatever the limits are.
  private var allowedCount: Int64 = 0
  private var allowedCharges: Int64 = 0

  init(_ limits: TierLimits) {
    limit = limits.cost
    count = limits.count
  }

  init(_ limits: TierLimits, notBelow allowed: Meta) {
    self.init(limits)
    allowedCount = allowed.count
    allowedCharges = allowed.charges
  }

  /// The terms of the sum at one moment.
  struct Sum {
    var rows: Int64
    var trash: Int64
    var othersTrash: Int64
    var log: Int64

    var total: Int64 { rows + trash + othersTrash + log }
  }

  /// The bytes that the manifest takes up without a row, and those that one transaction's new rows
  /// may take before the pages of the old ones are free.
  private static let base: UInt64 = 96 << 10
  /// The bytes of the file `manifest.sqlite-shm`, beside a log within its bound.
  private static let index: UInt64 = 32 << 10

  /// The bytes that the log may have before it is cut: it counts against the limit, and a small
  /// limit cannot spare 4 MB for it.
  var logBound: Int {
    guard limit != 0 else { return 16 << 20 }
    let eighth = Int(clamping: limit / 8)
    return min(max(4 << 20, min(16 << 20, eighth)), eighth)
  }

  /// The bytes above which no put is taken, since the log cannot be cut.
  var logCeiling: Int { limit == 0 ? 1 << 30 : Int(clamping: limit) }

  /// The bytes of the log that are used before it is moved into the database: less where the file
  /// system has little free.
  func logToMove(free: Int64) -> Int {
    min(4 << 20, logBound / 4 * 3, max(64 << 10, Int(clamping: free / 4)))
  }

  /// The bytes that rows and dead rows may take up.
  var budget: UInt64 {
    let most = limit / 8
    return limit == 0
      ? UInt64.max
      : limit - UInt64(logBound) - min(SpaceLedger.base, most) - min(SpaceLedger.index, most)
  }

  func hasTooMany(_ meta: Meta) -> Bool {
    count != 0 && meta.count > allowedCount && UInt64(meta.count) > count
  }

  /// True if rows have to go.
  func isOver(_ meta: Meta) -> Bool {
    hasTooMany(meta) || meta.charges > allowedCharges && UInt64(meta.charges) > budget
  }

  /// The bytes of trash that rows and log leave room for.
  func roomForTrash(_ sum: Sum) -> Int64 { max(0, sum.trash - excess(sum)) }

  func mustCutLog(_ sum: Sum) -> Bool { excess(sum) > 0 || sum.log > Int64(logBound) }

  private func excess(_ sum: Sum) -> Int64 {
    limit == 0 ? 0 : max(0, sum.total - Int64(clamping: limit))
  }
}

extension Meta {
  /// The charges of all rows, dead ones too.
  var charges: Int64 { bytes + dead }
}
