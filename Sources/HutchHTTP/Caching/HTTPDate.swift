import CSystem

/// The dates of HTTP (RFC 9110, section 5.6.7) in Unix seconds.
///
///     Sun, 06 Nov 1994 08:49:37 GMT    the format of today
///     Sunday, 06-Nov-94 08:49:37 GMT   of RFC 850: a year of two digits, at most 50 ahead
///     Sun Nov  6 08:49:37 1994         of asctime
///
/// Letters may be small or capital, as RFC 9111, section 4.2, recommends.
enum HTTPDate {
  /// Nil: it is none of the three formats. `now` gives a year of two digits its century.
  static func seconds(_ text: Bytes, now: Int64) -> Int64? {
    var reader = Reader(text)
    guard let comma = text.firstIndex(of: 0x2C) else { return asctime(&reader) }
    guard reader.skipLetters() == comma, comma >= 3, reader.take(0x2C), reader.take(0x20) else {
      return nil
    }
    let isShort = comma == 3
    let separator: UInt8 = isShort ? 0x20 : 0x2D
    guard let day = reader.number(2), reader.take(separator), let month = reader.month(),
      reader.take(separator), var year = reader.number(isShort ? 4 : 2), reader.take(0x20),
      let time = reader.time(), reader.take(0x20), reader.isAtZone
    else { return nil }
    if !isShort {
      let current = HTTPDate.year(of: now)
      year += current / 100 * 100
      if year > current + 50 { year -= 100 }
    }
    return seconds(year, month, day, time)
  }

  private static func asctime(_ reader: inout Reader) -> Int64? {
    guard reader.skipLetters() == 3, reader.take(0x20), let month = reader.month(),
      reader.take(0x20)
    else { return nil }
    guard let day = reader.take(0x20) ? reader.number(1) : reader.number(2), reader.take(0x20),
      let time = reader.time(), reader.take(0x20), let year = reader.number(4), reader.isAtEnd
    else { return nil }
    return seconds(year, month, day, time)
  }

  private static func seconds(
    _ year: Int64, _ month: Int64, _ day: Int64, _ time: Int64
  ) -> Int64? {
    guard day >= 1, day <= 31, year >= 1 else { return nil }
    return days(year, month, day) * 86_400 + time
  }

  /// Days since 1970 of a date, by Howard Hinnant's days_from_civil; `month` from 1.
  private static func days(_ year: Int64, _ month: Int64, _ day: Int64) -> Int64 {
    let shifted = month <= 2 ? year - 1 : year
    let era = shifted / 400
    let yearOfEra = shifted - era * 400
    let dayOfYear = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1
    let dayOfEra = yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear
    return era * 146_097 + dayOfEra - 719_468
  }

  /// In the format of today; from the year 0 on.
  static func append(_ seconds: Int64, to text: inout GrowingArray<UInt8>) throws(Failure) {
    let days = seconds >= 0 ? seconds / 86_400 : (seconds - 86_399) / 86_400
    // Hinnant's civil_from_days.
    let shifted = days + 719_468
    let era = (shifted >= 0 ? shifted : shifted - 146_096) / 146_097
    let dayOfEra = shifted - era * 146_097
    let yearOfEra =
      (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
    let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
    let shiftedMonth = (5 * dayOfYear + 2) / 153
    let day = dayOfYear - (153 * shiftedMonth + 2) / 5 + 1
    let month = shiftedMonth < 10 ? shiftedMonth + 3 : shiftedMonth - 9
    let year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0)
    let time = seconds - days * 86_400
    func name(_ names: StaticString, _ index: Int64) throws(Failure) {
      try text.append(
        contentsOf: Bytes(start: names.utf8Start + Int(index) * 3, count: 3))
    }
    func number(_ value: Int64, _ digits: Int) throws(Failure) {
      var place = Int64(1)
      for _ in 1..<digits { place *= 10 }
      while place > 0 {
        try text.append(UInt8(0x30 + value / place % 10))
        place /= 10
      }
    }
    try name("ThuFriSatSunMonTueWed", (days % 7 + 7) % 7)
    try text.append(", ")
    try number(day, 2)
    try text.append(" ")
    try name("JanFebMarAprMayJunJulAugSepOctNovDec", month - 1)
    try text.append(" ")
    try number(max(0, year), 4)
    try text.append(" ")
    try number(time / 3600, 2)
    try text.append(":")
    try number(time / 60 % 60, 2)
    try text.append(":")
    try number(time % 60, 2)
    try text.append(" GMT")
  }

  /// The year of a time, near enough to choose a century.
  private static func year(of seconds: Int64) -> Int64 { 1970 + seconds / 31_556_952 }

  private struct Reader {
    private let text: Bytes
    private var index = 0

    init(_ text: Bytes) { self.text = text }

    var isAtEnd: Bool { index == text.count }

    /// "GMT", and nothing behind it.
    var isAtZone: Bool { Letters.areSame(Bytes(rebasing: text[index...]), "GMT") }

    mutating func take(_ byte: UInt8) -> Bool {
      guard index < text.count, text[index] == byte else { return false }
      index += 1
      return true
    }

    /// Returns how many there were.
    mutating func skipLetters() -> Int {
      let start = index
      while index < text.count, (0x61...0x7A).contains(Letters.lower(text[index])) { index += 1 }
      return index - start
    }

    mutating func number(_ digits: Int) -> Int64? {
      guard text.count - index >= digits else { return nil }
      var value: Int64 = 0
      for _ in 0..<digits {
        let byte = text[index]
        guard byte >= 0x30, byte <= 0x39 else { return nil }
        value = value * 10 + Int64(byte - 0x30)
        index += 1
      }
      return value
    }

    /// From 1.
    mutating func month() -> Int64? {
      let names: StaticString = "JanFebMarAprMayJunJulAugSepOctNovDec"
      guard text.count - index >= 3 else { return nil }
      let found = Bytes(rebasing: text[index..<(index + 3)])
      for month in 0..<12
      where Letters.areSame(found, Bytes(start: names.utf8Start + 3 * month, count: 3)) {
        index += 3
        return Int64(month + 1)
      }
      return nil
    }

    /// "08:49:37"; a leap second counts as the one before.
    mutating func time() -> Int64? {
      guard let hours = number(2), hours < 24, take(0x3A), let minutes = number(2), minutes < 60,
        take(0x3A), let seconds = number(2), seconds <= 60
      else { return nil }
      return hours * 3600 + minutes * 60 + min(seconds, 59)
    }
  }
}
