/* What the RFCs of caching recommend to a cache beyond what they require. docs/http-caching.md lists
   which requirement each case tests. */
#include "rig.h"

TEST(dates_are_read_whatever_the_case) {
  ROWS(case,
       {"weekday", "Date: {date+0}\nExpires: MON, 18 Jan 2077 08:00:00 GMT", 1, NULL, 1, 0},
       {"month", "Date: {date+0}\nExpires: Mon, 18 JAN 2077 08:00:00 GMT", 1, NULL, 1, 0},
       {"zone", "Date: {date+0}\nExpires: Mon, 18 Jan 2077 08:00:00 gmT", 1, NULL, 1, 0},
       {"RFC 850", "Date: {date+0}\nExpires: monday, 18-jan-77 08:00:00 gmt", 1, NULL, 1, 0},
       {"asctime", "Date: {date+0}\nExpires: mon jan 18 08:00:00 2077", 1, NULL, 1, 0},
       {"another zone", "Date: {date+0}\nExpires: Mon, 18 Jan 2077 08:00:00 UTC", 1, NULL, 2, 0},
       {"no month", "Date: {date+0}\nExpires: Mon, 18 Jam 2077 08:00:00 GMT", 1, NULL, 2, 0},
       {"half a zone", "Date: {date+0}\nExpires: Mon, 18 Jan 2077 08:00:00 GM", 1, NULL, 2, 0},
       {"more", "Date: {date+0}\nExpires: Mon, 18 Jan 2077 08:00:00 GMT0", 1, NULL, 2, 0});
}
