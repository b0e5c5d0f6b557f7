from almanac.command_line import main

main()
