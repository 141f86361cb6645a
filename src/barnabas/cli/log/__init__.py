"""`barnabas log`: look into log files, check and mend them, see what was cleaned or set aside. No broker is asked."""
