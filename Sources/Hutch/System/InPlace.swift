import Synchronization

/// Takes no room, and keeps the struct of which it is a member at one address. A function that
/// borrows such a struct gets its address. Of any other struct Swift 6.3.1 copies every word to the
/// stack for each call that borrows it from another struct or from a class.
struct InPlace: ~Copyable {
  // Of all types an atomic is one that must not be moved while it is borrowed.
  private let none = InlineArray<0, Atomic<UInt8>> { _ in Atomic(0) }
}
