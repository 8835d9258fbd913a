import Testing

@testable import Hutch

/// What SEMANTICS calls age: two separate things, the entry's own before the tier's.
@Suite struct RecordTests {
  private let second: Int64 = 1_000_000_000

  private func record(created: Int64, expires: Int64 = 0, idle: Int64 = 0) -> Record {
    var record = Record()
    record.created = created
    record.accessed = created
    record.expires = expires
    record.timeToIdle = idle
    return record
  }

  @Test func anEntryEndsWhenItsTimeComesNotAfterIt() {
    let entry = record(created: 0, expires: 5 * second)
    expect(!entry.isExpired(at: 5 * second - 1, under: Ages()))
    expect(entry.isExpired(at: 5 * second, under: Ages()))
  }

  @Test func theEntrysOwnTimeCountsBeforeTheTiers() {
    let ages = Ages(timeToLive: second, timeToIdle: second)
    let entry = record(created: 0, expires: 9 * second, idle: 8 * second)
    expect(!entry.isExpired(at: 7 * second, under: ages))
    expect(entry.isExpired(at: 8 * second, under: ages))
    let immortal = record(created: 0, expires: Record.never, idle: Record.never)
    expect(!immortal.isExpired(at: Int64.max - 1, under: ages))
    expect(!immortal.mayExpire(under: ages))
  }

  @Test func anAccessLengthensLifeThroughTheTimeToIdleOnly() {
    var entry = record(created: 0, expires: 10 * second, idle: 2 * second)
    expect(entry.isExpired(at: 2 * second, under: Ages()))
    entry.accessed = 9 * second
    expect(!entry.isExpired(at: 9 * second, under: Ages()))
    expect(entry.isExpired(at: 10 * second, under: Ages()))
  }

  @Test func aCreatedInTheFutureCountsAsNow() {
    let now = 100 * second
    let entry = record(created: 1000 * second, expires: 1005 * second)
    expect(entry.endOfLife(at: now, under: Ages()) == 105 * second)
    let plain = record(created: 1000 * second)
    expect(plain.endOfLife(at: now, under: Ages(timeToLive: 7 * second)) == 107 * second)
    let idle = record(created: 1000 * second, idle: 3 * second)
    expect(idle.endOfIdle(at: now, under: Ages()) == 103 * second)
  }

  @Test func timesNearTheEndOfTimeDoNotOverflow() {
    let entry = record(created: Int64.max - 1)
    let ages = Ages(timeToLive: Int64.max - 1, timeToIdle: Int64.max - 1)
    expect(!entry.isExpired(at: Int64.max - 1, under: ages))
    expect(Record.end(of: Int64.max - 1, from: 10) == Int64.max)
    expect(Record.sum(Int64.min, -1) == Int64.min)
    expect(Record.difference(Int64.min, 1) == Int64.min)
    expect(Record.difference(Int64.max, -1) == Int64.max)
  }

  @Test func touchSetsTimesAnewAndKeepsDurations() {
    let entry = record(created: second, expires: 4 * second, idle: 2 * second)
    let kept = entry.touched(at: 10 * second, timeToLive: 0, timeToIdle: 0)
    expect(kept.created == 10 * second)
    expect(kept.accessed == 10 * second)
    expect(kept.expires == 13 * second)
    expect(kept.timeToIdle == 2 * second)
    let changed = entry.touched(
      at: 10 * second, timeToLive: Record.never, timeToIdle: 5 * second)
    expect(changed.expires == Record.never)
    expect(changed.timeToIdle == 5 * second)
  }
}
