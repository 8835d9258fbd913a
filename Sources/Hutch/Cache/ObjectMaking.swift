import CSystem

/// Objects that are being made of values: of all threads that ask for the object of one version of
/// an entry at the same time, one makes it, and the others wait for it and get the same.
final class ObjectMaking {
  /// Belongs to the table, under its lock.
  private final class Flight {
    let version: UInt64
    let hash: UInt64
    let thread = pthread_self()
    var isOver = false
    /// A reference of the flight's own.
    var object: UnownedBlock?
    var failure = Failure.noMemory
    var next: Flight?

    init(_ version: UInt64, _ hash: UInt64) {
      self.version = version
      self.hash = hash
    }

    deinit { object?.release() }
  }

  /// Protects the list and its flights. No other lock is taken under it.
  private let lock = Lock()
  private let over = Condition()
  private var first: Flight?

  /// The block of the object, which `make` makes if no other thread does. No lock is held.
  func object(
    of version: UInt64, _ hash: UInt64, _ make: () throws(Failure) -> Block
  ) throws(Failure) -> Block {
    lock.lock()
    var flight = first
    while let other = flight, other.version != version || other.hash != hash {
      flight = other.next
    }
    if let flight {
      lock.unlock()
      return try wait(for: flight)
    }
    let mine = Flight(version, hash)
    mine.next = first
    first = mine
    lock.unlock()
    do throws(Failure) {
      let block = try make()
      finish(mine, block.unowned, nil)
      return block
    } catch {
      finish(mine, nil, error)
      throw error
    }
  }

  private func wait(for flight: Flight) throws(Failure) -> Block {
    guard pthread_equal(flight.thread, pthread_self()) == 0 else {
      throw Failure(.deadlock, "an object codec asks for the object that it is making")
    }
    // The codec may wait for something that a thread holds that forks.
    let before = ThreadState.stepAside()
    lock.lock()
    while !flight.isOver { over.wait(lock) }
    lock.unlock()
    ThreadState.stepBack(to: before)
    guard let object = flight.object else { throw flight.failure }
    return object.retained()
  }

  private func finish(_ flight: Flight, _ object: UnownedBlock?, _ failure: Failure?) {
    if let object { flight.object = object.retained().leak() }
    if let failure { flight.failure = failure }
    lock.lock()
    flight.isOver = true
    if first === flight {
      first = flight.next
    } else {
      var other = first
      while let this = other, this.next !== flight { other = this.next }
      other?.next = flight.next
    }
    over.broadcast()
    lock.unlock()
  }
}
