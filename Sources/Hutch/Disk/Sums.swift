/// The sums of the rows, as the last commit has left them: how many rows there are, and their
/// charges.
///
/// For a put or a touch that evicts nothing the meta row would be a fourth page in the log. So such
/// a transaction leaves the meta row as it is: its newest row has the sums (`total_count`,
/// `total_bytes`). Every other transaction writes the meta row, with the highest id that has been
/// given out (`newest`).
///
///     the newest row's id > newest      the sums are that row's
///     else                              the sums are the meta row's
///
/// This is right since ids only grow, and a transaction that deletes a row, or changes sums in any
/// other way, writes the meta row unless it puts or touches a row after that. A put leaves the
/// newest row its id only if that row has the sums already (`Transaction.staysInPlace`). A
/// row's totals that cannot be are passed over: the sums are then the meta row's, until a check
/// counts the rows.
struct Sums {
  let generation: Int64
  let count: Int64
  let bytes: Int64
  let dead: Int64
  /// The time of the last write: at least that of the newest row.
  let lastTime: Int64
  /// The highest id that has been given out.
  let lastID: Int64

  /// The meta row with the sums. What else it has follows from `more` on: next_version, idle, the
  /// six limits, the state of the last end, and what an opening reads besides. The newest row is
  /// the one with the highest id that is not a slot, or the one in the last slot (RowScan). Damage
  /// may have made an id a text, which SQLite takes for greater than all numbers.
  static let query: StaticString = """
    SELECT m.generation, ifnull(e.total_count, m.count), ifnull(e.total_bytes, m.bytes), m.dead,
      max(m.last_time, ifnull(e.created, 0)),
      max(CAST(m.newest AS INTEGER), ifnull((SELECT max(slot) FROM entries), 0),
        ifnull((SELECT max(id) FROM entries WHERE id > slot AND id <= 9223372036854775807), 0)),
      m.next_version, m.idle, m.limit_cost, m.limit_count, m.limit_entry, m.time_to_live,
      m.time_to_idle, m.min_free,
      m.storage, m.clean, m.boot_id, m.boot_offset, m.durability, m.has_limits
    FROM meta m LEFT JOIN entries e
      ON e.slot = ifnull(
          (SELECT slot FROM entries
            WHERE id > slot AND id > (SELECT max(slot) FROM entries)
              AND id <= 9223372036854775807
            ORDER BY id DESC LIMIT 1),
          (SELECT max(slot) FROM entries))
        AND max(e.slot, ifnull(e.id, 0)) > m.newest
        AND e.total_count BETWEEN 0 AND 1152921504606846975
        AND e.total_bytes BETWEEN 0 AND 1152921504606846975
    WHERE m.id = 1
    """
  static let more: Int32 = 6

  /// The current row of `query`.
  @inline(never)
  init(_ statement: Statement) {
    generation = statement.integer(0)
    count = statement.integer(1)
    bytes = statement.integer(2)
    dead = statement.integer(3)
    lastTime = statement.integer(4)
    lastID = statement.integer(5)
  }
}

extension Meta {
  /// `row`: of `Sums.query`.
  mutating func use(_ sums: Sums, _ row: Statement) {
    generation = sums.generation
    count = sums.count
    bytes = sums.bytes
    dead = sums.dead
    lastTime = sums.lastTime
    nextVersion = row.bits(Sums.more)
    mayIdle = row.integer(Sums.more + 1) != 0
    let end = row.integer(Sums.more + 9)
    (isClean, owesSweep) = (end != 0, end == 2)
    // A number that is none: the weakest.
    durability =
      UInt32(exactly: row.integer(Sums.more + 12)).flatMap { Durability(rawValue: $0) } ?? .process
  }
}
