import Testing

@testable import Hutch

/// The limit in force, where memory that no charge counts takes its part.
@Suite struct BudgetTests {
  static let limit: UInt64 = 64 << 20
  /// In force, but for what is lost.
  private static let base = limit - limit / 1024
  private static let idle = 32 << 20

  /// A budget that closures can take.
  final class Bench {
    private let budget: Budget

    init(limit: UInt64 = BudgetTests.limit) throws { budget = try Budget(TierLimits(cost: limit)) }

    func reserve(_ cost: UInt64) -> Bool { budget.reserve(cost: cost, count: 1) }
    func release(_ cost: UInt64) { budget.release(cost: cost, count: 1) }
    func hasRoom(_ cost: UInt64) -> Bool { budget.hasRoom(cost: cost, count: 1) }
    func isTooMuch(_ idle: Int) -> Bool { budget.isTooMuch(idle) }
    func pay(_ charge: UInt64, _ lost: Int) { budget.pay(with: charge, lost: UInt64(lost)) }
    func addPlaces(_ bytes: Int) { budget.addPlaces(bytes) }
    func idle(_ bytesPerEntry: Int) -> Int { budget.idle(bytesPerEntry) }
    func noteOwnCost() { budget.noteOwnCost() }
    var isPaying: Bool { budget.isPaying }
    var isWithinLimits: Bool { budget.isWithinLimits }
    var limit: UInt64 { budget.costLimit }
  }

  /// Puts lower the limit step by step, by their charges, down to what idle bytes leave.
  @Test func putsPayForIdleBytesInSteps() throws {
    let budget = try Bench()
    expect(!budget.isTooMuch(1 << 20))
    expect(budget.isTooMuch(BudgetTests.idle))
    expect(budget.reserve(60 << 20))
    var cost: UInt64 = 60 << 20
    let charge: UInt64 = 8 << 10
    for _ in 0..<10_000 {
      budget.pay(charge, BudgetTests.idle)
      if budget.hasRoom(charge) { continue }
      // As a put that evicts: three for one.
      budget.release(3 * charge)
      expect(budget.reserve(charge))
      cost -= 2 * charge
    }
    let left = BudgetTests.base - (UInt64(BudgetTests.idle) - BudgetTests.limit / 48 - 64 << 10)
    expect(cost <= left && cost > left - 8 * charge)
    expect(budget.isWithinLimits && budget.limit == BudgetTests.limit)
  }

  /// The limit is as low as the idle bytes of this moment say, and not lower with each put.
  @Test func theLimitFollowsTheIdleBytes() throws {
    let budget = try Bench()
    for _ in 0..<100 { budget.pay(1 << 20, 8 << 20) }
    expect(budget.reserve(50 << 20))
    budget.release(50 << 20)
    budget.addPlaces(9000)
    budget.addPlaces(-1000)
    expect(budget.idle(80) == 8000)
    expect(budget.reserve(1 << 20))
    expect(budget.idle(80) == 7920)
  }

  /// A put larger than the lowered limit has room once all else has gone.
  @Test func theLargestEntryFitsUnderALoweredLimit() throws {
    let budget = try Bench()
    for _ in 0..<1000 { budget.pay(8 << 10, BudgetTests.idle) }
    expect(!budget.reserve(60 << 20))
    budget.pay(60 << 20, BudgetTests.idle)
    expect(budget.reserve(60 << 20))
  }

  /// The limit rises again as entries come, when the idle bytes are gone.
  @Test func theLimitRisesAgain() throws {
    let budget = try Bench()
    budget.pay(100, BudgetTests.idle)
    expect(budget.isPaying)
    for _ in 0..<200 { budget.pay(1 << 20, 0) }
    expect(budget.reserve(BudgetTests.base))
  }

  /// What is lost for a moment lowers the limit by a step, from which it rises again.
  @Test func aMomentCostsAStep() throws {
    let budget = try Bench()
    expect(budget.reserve(BudgetTests.base - 4000))
    budget.pay(200, BudgetTests.idle)
    expect(!budget.hasRoom(3900))
    for _ in 0..<4 { budget.pay(200, 0) }
    // Not `isPaying`, which other tests have a say in: a put pays while the heap has too many holes.
    expect(budget.hasRoom(4000) && !budget.hasRoom(4001))
  }

  /// Costs of the caller's own need not be bytes: such a tier pays nothing.
  @Test func aTierWithOwnCostsPaysNothing() throws {
    let budget = try Bench()
    budget.pay(100, BudgetTests.idle)
    budget.noteOwnCost()
    budget.pay(100, BudgetTests.idle)
    expect(!budget.isPaying)
    expect(budget.reserve(BudgetTests.limit))
    let without = try Bench(limit: 0)
    without.pay(100, BudgetTests.idle)
    expect(without.reserve(1 << 62))
  }
}
