import CSystem

/// An object that a ChainedTable can have. While a table has it, `chain` is the table's.
protocol Chained: AnyObject {
  var hash: UInt64 { get }
  var key: Bytes { get }
  var chain: Self? { get set }
}

/// Objects by their keys: chains by hash. The size is fixed, so a table with few objects allocates
/// once. The table keeps its objects. It has no lock: its owner has one.
struct ChainedTable<Element: Chained>: ~Copyable {
  private let chains: UnsafeMutablePointer<Element?>
  private let size: Int

  /// `size`: a power of two.
  init(size: Int) throws(Failure) {
    chains = try Allocation.array(Element?.self, size)
    self.size = size
  }

  deinit {
    chains.deinitialize(count: size)
    free(chains)
  }

  private func place(_ hash: UInt64) -> Int { KeyedHash.place(of: hash, mask: size - 1) }

  /// The object of a key; of several the one that was inserted last.
  @inline(never)
  func find(_ key: Bytes, _ hash: UInt64) -> Element? {
    var next = chains[place(hash)]
    while let element = next {
      if element.hash == hash && element.key.hasSameBytes(as: key) { return element }
      next = element.chain
    }
    return nil
  }

  func insert(_ element: Element) {
    let place = place(element.hash)
    element.chain = chains[place]
    chains[place] = element
  }

  /// False: the table does not have the object.
  @inline(never)
  func remove(_ element: Element) -> Bool {
    let place = place(element.hash)
    if chains[place] === element {
      chains[place] = element.chain
    } else {
      var previous = chains[place]
      while let at = previous, at.chain !== element { previous = at.chain }
      guard let previous else { return false }
      previous.chain = element.chain
    }
    element.chain = nil
    return true
  }

  /// Any object; nil: the table is empty.
  func first() -> Element? {
    for place in 0..<size { if let element = chains[place] { return element } }
    return nil
  }

  /// Drops all objects as they are.
  func removeAll() { for place in 0..<size { chains[place] = nil } }
}
